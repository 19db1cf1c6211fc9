"""What `evo new` writes: a file of each kind and an experiment; their names are replaced."""
