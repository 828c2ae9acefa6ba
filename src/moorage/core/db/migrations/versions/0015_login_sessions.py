"""A list of sessions, so that each can be revoked on its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "login_session",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("jti", sa.Text(), nullable=False),
        sa.Column("user_id", ID, nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["account.id"], name=op.f("fk_login_session_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_login_session")),
        sa.UniqueConstraint("jti", name=op.f("uq_login_session_jti")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_login_session_user_id", "login_session", ["user_id"])
