"""Container images without Docker: references, registry client, unpacking."""
