"""Databases that are linked to an app."""
