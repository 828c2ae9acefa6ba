"""Disk limits of an app."""
