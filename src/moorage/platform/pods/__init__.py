"""Programs of the platform's image that run in pods of organizations."""
