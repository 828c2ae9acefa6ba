"""Machines, and the machine that owns each replica, database, run, volume and repository."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from moorage.core.db.schema import Id

revision = "0019"
down_revision = "0018"

OWNED = ("replica", "database", "database_server", "cronjob_execution", "repository")


def upgrade() -> None:
    op.create_table(
        "machine",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("cpu_count", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("load_milli", sa.Integer(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("boot", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger(), nullable=False),
        sa.Column("gone_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_machine"),
        sa.UniqueConstraint("key", name="uq_machine_key"),
        sa.UniqueConstraint("name", name="uq_machine_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "app_volume",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("org_id", Id, nullable=False),
        sa.Column("project_id", Id, nullable=False),
        sa.Column("machine_id", Id, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_app_volume"),
        sa.UniqueConstraint("project_id", name="uq_app_volume_project_id"),
        sqlite_autoincrement=True,
    )
    # Id 0: the first machine that finds the resource in its data folder becomes its owner.
    for name in OWNED:
        op.add_column(name, sa.Column("machine_id", Id, nullable=False, server_default="0"))
    op.add_column("job", sa.Column("machine_id", Id, nullable=True))
