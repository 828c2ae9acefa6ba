"""names that a certificate was granted for, which the weekly budget of an organization counts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "certificate_grant",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_certificate_grant")),
        sa.UniqueConstraint("org_id", "kind", "name", name=op.f("uq_certificate_grant_org_id_kind_name")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("certificate_grant", schema=None) as batch_op:
        batch_op.create_index("ix_certificate_grant_org_id_at", ["org_id", "at"], unique=False)
    # Names that are served already keep their certificates, and do not count.
    for kind, column, source in (
        ("subdomain", "name", "project WHERE true"),
        ("subdomain", "name", "preview WHERE status = 'active'"),
        ("domain", "domain", "custom_domain WHERE status = 'verified'"),
    ):
        rows = f"SELECT org_id, '{kind}', {column}, 0 FROM {source}"  # noqa: S608 - constants of this file
        op.execute(f"INSERT INTO certificate_grant (org_id, kind, name, at) {rows} ON CONFLICT DO NOTHING")
