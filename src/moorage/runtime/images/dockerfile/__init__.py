"""Builds images from Dockerfiles without a Docker daemon."""
