"""What `evo new` writes: a file of each kind, its tests, and an experiment; their names are replaced."""
