"""Images that clients push to the platform: the OCI distribution API, storage and deployment."""
