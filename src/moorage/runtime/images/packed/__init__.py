"""Archives of tenants: limits of their headers, and decompression."""
