"""What `evo sweep` does: trials of option values, the race between them, Optuna."""
