"""Private image registries, stored images of organizations, and projects from a ready image."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "registry",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("org_id", _ID, nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("username", sa.Text(), nullable=False),
        sa.Column("token_host", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_registry")),
        sa.UniqueConstraint("org_id", "host", name=op.f("uq_registry_org_id_host")),
        sqlite_autoincrement=True,
    )
