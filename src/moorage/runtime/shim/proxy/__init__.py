"""The proxy of a public database."""
