"""Edges on other machines: the listener beside an edge, and the client of the platform's other processes."""
