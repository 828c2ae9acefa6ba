"""Records of invocations: read from the spool, stored and served."""
