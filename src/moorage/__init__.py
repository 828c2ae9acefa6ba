"""Moorage: a hosting platform that one person starts with one command."""

__version__ = "0.1.0"
