"""What `evo plan` does: a short probe, and an estimate of time, memory and disk."""
