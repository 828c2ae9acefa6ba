"""Idempotency keys: a repeated write takes effect once."""
