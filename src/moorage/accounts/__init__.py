"""Users, organizations, plans, billing and webhooks of code hosts."""
