"""The games, a file each or a folder."""
