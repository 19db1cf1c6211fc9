"""What `evo doctor` does: find what is wrong with a run, from its files."""
