"""Copies images to the registry that the nodes of a cluster pull from."""
