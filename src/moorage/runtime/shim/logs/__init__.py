"""Output of an app: reading its pipes and writing its log files."""
