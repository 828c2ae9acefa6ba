"""Backups of the whole platform."""
