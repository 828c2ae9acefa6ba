"""Executes the instructions of a Dockerfile and stores the result as an OCI image."""
