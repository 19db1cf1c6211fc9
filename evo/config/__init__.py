"""Experiment files: loading, sections, error messages with line numbers."""
