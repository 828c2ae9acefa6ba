"""Hosts of databases: in a cluster, workloads reach a database by a name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.add_column("database", sa.Column("host", sa.Text(), nullable=True))
