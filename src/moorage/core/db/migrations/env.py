"""Entry point of Alembic: runs the migrations on the connection of `db.migrate`."""

from __future__ import annotations

from alembic import context

from moorage.core.db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    compare_type=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
