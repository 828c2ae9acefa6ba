"""Limits of clients: rates, open streams, trusted proxies, allowed origins."""
