"""Databases that the first deployment of a project creates."""
