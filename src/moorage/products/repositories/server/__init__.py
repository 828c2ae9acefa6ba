"""The built-in git server."""
