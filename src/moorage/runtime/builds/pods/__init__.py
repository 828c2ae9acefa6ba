"""Builds in pods of a cluster: `builds` starts them, `agent` runs inside of them."""
