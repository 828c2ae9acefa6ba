"""Limits for clients: request rates, open streams, trusted proxies, allowed origins."""
