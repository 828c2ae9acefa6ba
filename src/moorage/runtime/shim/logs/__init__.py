"""Output of an app: read, and written to log files."""
