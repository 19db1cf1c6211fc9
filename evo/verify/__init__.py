"""What `evo verify` does: checking and replaying a run."""
