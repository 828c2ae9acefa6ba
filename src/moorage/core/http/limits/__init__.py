"""Limits for clients: rates, open streams, trusted proxies, allowed origins."""
