"""Fills the claims of volumes with the files that apps had on one machine."""
