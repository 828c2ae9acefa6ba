"""Private image registries, stored images of organizations, and projects from a ready image."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "registry",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("org_id", _ID, nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("username", sa.Text(), nullable=False),
        sa.Column("token_host", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_registry")),
        sa.UniqueConstraint("org_id", "host", name=op.f("uq_registry_org_id_host")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "image_repository",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("org_id", _ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("project_id", _ID, nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_image_repository")),
        sa.UniqueConstraint("org_id", "name", name=op.f("uq_image_repository_org_id_name")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_image_repository_project_id", "image_repository", ["project_id"])
    op.create_table(
        "image_part",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("org_id", _ID, nullable=False),
        sa.Column("repository_id", _ID, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["repository_id"], ["image_repository.id"], name=op.f("fk_image_part_repository_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_image_part")),
        sa.UniqueConstraint("repository_id", "digest", name=op.f("uq_image_part_repository_id_digest")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_image_part_org_id_digest", "image_part", ["org_id", "digest"])
    op.create_table(
        "image_tag",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("org_id", _ID, nullable=False),
        sa.Column("repository_id", _ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["repository_id"], ["image_repository.id"], name=op.f("fk_image_tag_repository_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_image_tag")),
        sa.UniqueConstraint("repository_id", "name", name=op.f("uq_image_tag_repository_id_name")),
        sqlite_autoincrement=True,
    )
    op.add_column("project", sa.Column("public_image", sa.Text(), nullable=True))
