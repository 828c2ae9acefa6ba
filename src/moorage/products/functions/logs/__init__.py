"""Log text of functions."""
