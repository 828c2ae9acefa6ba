"""Metrics of databases."""
