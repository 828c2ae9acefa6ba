"""Resource limits: cgroups of version 1 and 2, and a substitute without them."""
