"""Philox and its named streams."""
