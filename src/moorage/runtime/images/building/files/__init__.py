"""Files of layers: merged trees, copies, archives."""
