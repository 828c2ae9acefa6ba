"""Machines that share a store, and the resources that each of them owns."""
