"""Workspaces and versions of Node.js in builds."""
