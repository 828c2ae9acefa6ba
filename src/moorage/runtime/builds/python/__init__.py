"""Versions of Python that are not on the machine."""
