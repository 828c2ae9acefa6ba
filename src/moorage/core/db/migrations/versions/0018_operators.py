"""Operators of the platform, and organizations that an operator suspended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column("account", sa.Column("operator_at", sa.BigInteger(), nullable=True))
    op.add_column("organization", sa.Column("suspended_at", sa.BigInteger(), nullable=True))
