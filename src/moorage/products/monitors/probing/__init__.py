"""Checks of monitors, and the records of their results."""
