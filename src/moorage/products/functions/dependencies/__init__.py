"""Installation of the dependencies of functions."""
