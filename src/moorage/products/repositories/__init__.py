"""Repositories: the built-in git server, and fetching commits from it or from the code host."""
