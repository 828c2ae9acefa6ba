"""Resource usage of processes and folders."""
