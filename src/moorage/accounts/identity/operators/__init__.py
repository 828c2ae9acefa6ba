"""Operators of the platform: their role, and the commands of `moorage admin`."""
