"""Whole tasks of compiled games on a GPU, with the bits of the CPU's kernel."""
