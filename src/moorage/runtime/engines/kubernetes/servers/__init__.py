"""Database servers as StatefulSets, each with an agent that serves the platform."""
