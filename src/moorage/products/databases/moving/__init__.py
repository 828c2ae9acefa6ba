"""Moves databases of a machine to the cluster on which the platform runs now."""
