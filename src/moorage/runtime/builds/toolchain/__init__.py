"""Compilers and interpreters of builds: which there are, and which are fetched."""
