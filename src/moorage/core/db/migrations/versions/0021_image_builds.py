"""Cached layers of image builds, and the build arguments of Dockerfiles."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "image_layer",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("cache", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_image_layer")),
        sa.UniqueConstraint("org_id", "cache", "key", name=op.f("uq_image_layer_org_id_cache_key")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_image_layer_used_at", "image_layer", ["used_at"])
    for table in ("project", "cronjob"):
        op.add_column(table, sa.Column("docker_build_args", sa.Text(), nullable=True))
        op.add_column(table, sa.Column("docker_build_target", sa.Text(), nullable=True))
