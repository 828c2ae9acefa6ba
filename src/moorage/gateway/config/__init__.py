"""The configuration of Caddy."""
