"""Container images without Docker: references, registry client, verification and unpacking."""
