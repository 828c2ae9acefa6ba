"""names that rest for 30 days after their organization gave them up."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

REST_MS = 30 * 24 * 3600 * 1000


def upgrade() -> None:
    op.create_table(
        "freed_name",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_freed_name")),
        sa.UniqueConstraint("kind", "name", name=op.f("uq_freed_name_kind_name")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("freed_name", schema=None) as batch_op:
        batch_op.create_index("ix_freed_name_org_id", ["org_id"], unique=False)
    # The last organization that left a name within the last 30 days keeps it.
    op.get_bind().execute(
        sa.text(
            "INSERT INTO freed_name (org_id, kind, name, until) "
            "SELECT org_id, 'project', name, until + :rest FROM project_name AS left_name "
            "WHERE until > :since AND id = (SELECT max(id) FROM project_name AS other "
            "WHERE other.name = left_name.name AND other.until IS NOT NULL)"
        ),
        {"rest": REST_MS, "since": int(time.time() * 1000) - REST_MS},
    )
