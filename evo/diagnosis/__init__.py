"""What `evo doctor` does: a run as its files have it, and what is wrong with it."""
