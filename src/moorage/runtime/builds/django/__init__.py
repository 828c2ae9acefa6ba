"""Settings module that Django apps start with; the folder is mounted into their sandboxes."""
