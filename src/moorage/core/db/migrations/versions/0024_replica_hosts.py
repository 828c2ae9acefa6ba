"""Hosts of replicas: a pod of a cluster has an address of its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.add_column("replica", sa.Column("host", sa.Text(), nullable=True))
