"""Logs of running apps."""
