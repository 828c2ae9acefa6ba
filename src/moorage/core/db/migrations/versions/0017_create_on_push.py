"""Whether a push to a repository that nothing uses creates a project."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("organization", sa.Column("create_on_push", sa.Boolean(), nullable=False, server_default=sa.true()))
