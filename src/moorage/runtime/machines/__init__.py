"""Membership of this machine, and authenticated connections between machines."""
