"""A page about runs: one file of HTML that needs nothing else."""
