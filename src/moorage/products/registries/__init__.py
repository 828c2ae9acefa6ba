"""Credentials of private image registries."""
