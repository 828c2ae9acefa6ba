"""Container images without Docker: named, fetched from a registry, checked and unpacked into a folder."""
