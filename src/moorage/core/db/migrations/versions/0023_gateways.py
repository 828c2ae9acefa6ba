"""Gateways, and the generation of routes that each of them serves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from moorage.core.db.schema import Id

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.create_table(
        "route_generation",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_route_generation"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "gateway",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_gateway"),
        sa.UniqueConstraint("key", name="uq_gateway_key"),
        sqlite_autoincrement=True,
    )
