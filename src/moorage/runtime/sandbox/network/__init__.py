"""The network of a sandbox: a supervisor decides about its connections."""
