"""organizations that proved to own a GitHub account; earlier claims stay listed and give no access."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "github_binding",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("installation_id", sa.BigInteger(), nullable=False),
        sa.Column("login", sa.Text(), nullable=False),
        sa.Column("login_key", sa.Text(), nullable=False),
        sa.Column("proved_by", sa.Text(), nullable=False),
        sa.Column("user_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_github_binding")),
        sa.UniqueConstraint("org_id", "installation_id", name=op.f("uq_github_binding_org_id_installation_id")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("github_binding", schema=None) as batch_op:
        batch_op.create_index("ix_github_binding_installation_id", ["installation_id"], unique=False)

    op.create_table(
        "github_used_state",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_github_used_state")),
        sa.UniqueConstraint("nonce", name=op.f("uq_github_used_state_nonce")),
        sqlite_autoincrement=True,
    )
