"""The learner whose updates have the same bits on every CPU."""
