"""replicas of apps, and what is measured of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # Defaults are texts: for an expression SQLite would make the table anew, and give out ids of deleted rows again.
    op.create_table(
        "app_sample",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("cpu_us", sa.BigInteger(), nullable=False),
        sa.Column("cpu_share_us", sa.BigInteger(), nullable=False),
        sa.Column("span_ms", sa.BigInteger(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("replicas", sa.Integer(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("s1xx", sa.BigInteger(), nullable=False),
        sa.Column("s2xx", sa.BigInteger(), nullable=False),
        sa.Column("s3xx", sa.BigInteger(), nullable=False),
        sa.Column("s4xx", sa.BigInteger(), nullable=False),
        sa.Column("s5xx", sa.BigInteger(), nullable=False),
        sa.Column("latency", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_app_sample")),
        sa.UniqueConstraint("project_id", "at", name=op.f("uq_app_sample_project_id_at")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("app_sample", schema=None) as batch_op:
        batch_op.create_index("ix_app_sample_at", ["at"], unique=False)

    op.create_table(
        "replica",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("preview_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("deployment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("drain_until", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_replica")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("replica", schema=None) as batch_op:
        batch_op.create_index("ix_replica_deployment_id", ["deployment_id"], unique=False)
        batch_op.create_index("ix_replica_project_id", ["project_id"], unique=False)

    with op.batch_alter_table("deployment", schema=None) as batch_op:
        batch_op.add_column(sa.Column("is_app", sa.Boolean(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("swap", sa.Text(), nullable=True))

    with op.batch_alter_table("project", schema=None) as batch_op:
        batch_op.add_column(sa.Column("deploy_guard", sa.Boolean(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("replicas", sa.Integer(), nullable=False, server_default="1"))
        batch_op.add_column(sa.Column("asleep", sa.Boolean(), nullable=False, server_default="0"))
