"""Worker processes: channel, fork server, pool, rounds, devices, GPU placement."""
