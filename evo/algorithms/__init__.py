"""Algorithms, one file each: its options, its mathematics, its state."""
