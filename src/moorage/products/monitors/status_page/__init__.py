"""The public status page of an organization."""
