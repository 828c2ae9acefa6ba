"""Writes the reference documentation from the code, so that it cannot say anything else: `make docs`."""
