"""the log text of functions is in files, and rows refer to it.

Text that is in rows already stays there until the rows are deleted, 30 days later at most. What is over the quotas that
text in files has by default is deleted now, the oldest first.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

FUNCTION_BYTES = 100 * 2**20
ORGANIZATION_BYTES = 1024 * 2**20


def upgrade() -> None:
    op.add_column("invocation", sa.Column("log_ref", sa.Text(), nullable=True))
    delete_over_quota(FUNCTION_BYTES, ORGANIZATION_BYTES)


def delete_over_quota(function_bytes: int, organization_bytes: int) -> None:
    invocation = sa.table("invocation", *map(sa.column, ("id", "org_id", "function_id", "logs", "log_ref")))
    of = invocation.c
    newer = (
        sa.select(
            of.id,
            sa.func.sum(sa.func.length(of.logs))
            .over(partition_by=of.function_id, order_by=of.id.desc())
            .label("function"),
            sa.func.sum(sa.func.length(of.logs))
            .over(partition_by=of.org_id, order_by=of.id.desc())
            .label("organization"),
        )
        .where(of.logs.is_not(None))
        .subquery()
    )
    over = sa.select(newer.c.id).where(
        (newer.c.function > function_bytes) | (newer.c.organization > organization_bytes)
    )
    op.execute(sa.update(invocation).where(of.id.in_(over)).values(logs=None, log_ref="!quota"))
