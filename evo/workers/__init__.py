"""Worker processes: channel, fork server, deadlines, devices, GPU placement."""
