"""GitHub accounts and their private repositories."""
