"""Move a platform to other stores: from SQLite to PostgreSQL, and from a folder of artifacts to S3."""
