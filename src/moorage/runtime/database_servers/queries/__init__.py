"""Statements of users on a running server: read-only by default, with limits."""
