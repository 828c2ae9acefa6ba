"""Databases with a primary and a standby."""
