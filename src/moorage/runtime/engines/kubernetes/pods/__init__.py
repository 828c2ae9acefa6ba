"""Addresses of pods: when they listen, and where a moved one is."""
