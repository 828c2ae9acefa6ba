"""Agent of a database server: process 1 of its pod, which runs the server and serves the platform over mutual TLS."""
