"""Machines of replicas and volumes."""
