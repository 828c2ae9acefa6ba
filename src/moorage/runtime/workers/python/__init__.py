"""The Python worker, which runs one function inside its sandbox."""
