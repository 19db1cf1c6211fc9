"""Arrays, hashing, durable writes and locks: what the run directory is made with."""
