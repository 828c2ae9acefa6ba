"""Builds of repositories with a Dockerfile."""
