"""Migrations: one file per released change of the schema."""

# The newest revision. A store that is at it needs no migration, and Alembic is not even imported.
HEAD = "0016"
