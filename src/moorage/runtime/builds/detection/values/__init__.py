"""Values that a repository keeps out of its files."""
