"""HTTP connections of the edge: listeners, parsing, limits, responses."""
