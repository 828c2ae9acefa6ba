"""cronjobs, what they are built into, and their runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "cronjob",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("image_source", sa.Text(), nullable=False),
        sa.Column("cron_schedule", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("instance_type", sa.Text(), nullable=False),
        sa.Column("repository_name", sa.Text(), nullable=True),
        sa.Column("repository_key", sa.Text(), nullable=True),
        sa.Column("branch", sa.Text(), nullable=True),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("language", sa.Text(), nullable=True),
        sa.Column("base_dir", sa.Text(), nullable=True),
        sa.Column("build_cmd", sa.Text(), nullable=True),
        sa.Column("start_cmd", sa.Text(), nullable=True),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("dockerfile_path", sa.Text(), nullable=True),
        sa.Column("docker_build_context_dir", sa.Text(), nullable=True),
        sa.Column("auto_deploy", sa.Boolean(), nullable=False),
        sa.Column("public_image", sa.Text(), nullable=True),
        sa.Column("env", sa.Text(), nullable=False),
        sa.Column("build_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("total_runs", sa.Integer(), nullable=False),
        sa.Column("successful_runs", sa.Integer(), nullable=False),
        sa.Column("failed_runs", sa.Integer(), nullable=False),
        sa.Column("skipped_runs", sa.Integer(), nullable=False),
        sa.Column("last_run_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cronjob")),
        sa.UniqueConstraint("org_id", "name", name=op.f("uq_cronjob_org_id_name")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("cronjob", schema=None) as batch_op:
        batch_op.create_index("ix_cronjob_repository_key", ["repository_key"], unique=False)

    op.create_table(
        "cronjob_build",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("cronjob_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=True),
        sa.Column("commit_sha", sa.Text(), nullable=True),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("plan", sa.Text(), nullable=True),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cronjob_build")),
        sa.UniqueConstraint("uuid", name=op.f("uq_cronjob_build_uuid")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("cronjob_build", schema=None) as batch_op:
        batch_op.create_index("ix_cronjob_build_cronjob_id", ["cronjob_id"], unique=False)

    op.create_table(
        "cronjob_build_line",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("build_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cronjob_build_line")),
        sa.UniqueConstraint("build_id", "seq", name=op.f("uq_cronjob_build_line_build_id_seq")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "cronjob_execution",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("cronjob_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("scheduled_for", sa.BigInteger(), nullable=True),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("build_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("image_digest", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cronjob_execution")),
        sa.UniqueConstraint("cronjob_id", "scheduled_for", name=op.f("uq_cronjob_execution_cronjob_id_scheduled_for")),
        sa.UniqueConstraint("uuid", name=op.f("uq_cronjob_execution_uuid")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("cronjob_execution", schema=None) as batch_op:
        batch_op.create_index("ix_cronjob_execution_status", ["status"], unique=False)
