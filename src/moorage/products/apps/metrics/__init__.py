"""Metrics of apps."""
