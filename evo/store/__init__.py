"""The run directory: commits, checkpoints, recovery, champions."""
