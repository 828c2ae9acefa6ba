"""One-off programs in a sandbox."""
