"""Compiled forward passes of networks."""
