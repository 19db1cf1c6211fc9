"""Playing a task: compiled episodes and segments, Gymnasium, TensorFlow."""
