"""CPU, memory and disk usage of databases over time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    for name in ("cpu_milli", "memory_bytes", "disk_bytes"):
        op.add_column("database_sample", sa.Column(name, sa.BigInteger(), nullable=True))
    for name in ("cpu_looks", "memory_looks"):
        op.add_column("database_sample", sa.Column(name, sa.Integer(), nullable=True))
