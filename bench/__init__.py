"""Benchmarks with bars and comparisons: `python -m bench`."""
