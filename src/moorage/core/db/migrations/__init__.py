"""Migrations: one file per released change of the schema."""

# The newest revision. Alembic is not imported for a database that is at this revision.
HEAD = "0025"
