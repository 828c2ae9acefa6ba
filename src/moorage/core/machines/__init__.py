"""Machines that share a store, and which of them owns what."""
