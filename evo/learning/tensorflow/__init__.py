"""The learner that computes updates in TensorFlow."""
