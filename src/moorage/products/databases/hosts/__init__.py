"""Where the servers of databases run: on folders of this machine, or behind agents of an engine."""
