"""Routes below `/v1/operator`: the platform as a whole, for its operators."""
