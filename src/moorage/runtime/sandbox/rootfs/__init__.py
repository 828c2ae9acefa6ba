"""Writable root file systems of container images, with their own ids."""
