"""Deployments: from a request to a live release, with their logs."""
