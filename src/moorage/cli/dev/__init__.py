"""`moorage functions dev`: the edge and the workers of the platform, without sandboxes, for one folder."""
