"""Generate the reference documentation from the code: `make docs`."""
