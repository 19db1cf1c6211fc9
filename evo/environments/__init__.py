"""Snake, Gymnasium, and what makes an environment of a game's file."""
