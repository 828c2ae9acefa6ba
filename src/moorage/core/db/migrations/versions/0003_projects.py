"""projects, deployments, repositories, domains, rules and analytics."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "analytics_hour",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("visitors", sa.BigInteger(), nullable=False),
        sa.Column("newcomers", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("s2xx", sa.BigInteger(), nullable=False),
        sa.Column("s3xx", sa.BigInteger(), nullable=False),
        sa.Column("s4xx", sa.BigInteger(), nullable=False),
        sa.Column("s5xx", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_analytics_hour")),
        sa.UniqueConstraint("project_id", "hour", name=op.f("uq_analytics_hour_project_id_hour")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("analytics_hour", schema=None) as batch_op:
        batch_op.create_index("ix_analytics_hour_hour", ["hour"], unique=False)

    op.create_table(
        "analytics_position",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("head_size", sa.Integer(), nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_analytics_position")),
        sa.UniqueConstraint("folder", name=op.f("uq_analytics_position_folder")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "analytics_top",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_analytics_top")),
        sa.UniqueConstraint(
            "project_id", "kind", "day", "name", name=op.f("uq_analytics_top_project_id_kind_day_name")
        ),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("analytics_top", schema=None) as batch_op:
        batch_op.create_index("ix_analytics_top_day", ["day"], unique=False)

    op.create_table(
        "analytics_visitor",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("visitor", sa.Text(), nullable=False),
        sa.Column("hours", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_analytics_visitor")),
        sa.UniqueConstraint("project_id", "day", "visitor", name=op.f("uq_analytics_visitor_project_id_day_visitor")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("analytics_visitor", schema=None) as batch_op:
        batch_op.create_index("ix_analytics_visitor_day", ["day"], unique=False)

    op.create_table(
        "domain_holder",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_domain_holder")),
        sa.UniqueConstraint("domain", name=op.f("uq_domain_holder_domain")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "github_installation",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("login", sa.Text(), nullable=False),
        sa.Column("login_key", sa.Text(), nullable=False),
        sa.Column("installation_id", sa.BigInteger(), nullable=False),
        sa.Column("suspended", sa.Boolean(), nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_github_installation")),
        sa.UniqueConstraint("login_key", name=op.f("uq_github_installation_login_key")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "project",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=True),
        sa.Column("is_auto", sa.Boolean(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("repository_name", sa.Text(), nullable=True),
        sa.Column("repository_key", sa.Text(), nullable=True),
        sa.Column("branch", sa.Text(), nullable=True),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("language", sa.Text(), nullable=True),
        sa.Column("runtime", sa.Text(), nullable=True),
        sa.Column("base_dir", sa.Text(), nullable=False),
        sa.Column("build_dir", sa.Text(), nullable=True),
        sa.Column("build_cmd", sa.Text(), nullable=True),
        sa.Column("start_cmd", sa.Text(), nullable=True),
        sa.Column("entry_point", sa.Text(), nullable=True),
        sa.Column("health_check_path", sa.Text(), nullable=True),
        sa.Column("docker_file_path", sa.Text(), nullable=True),
        sa.Column("docker_build_context_dir", sa.Text(), nullable=True),
        sa.Column("tier", sa.Text(), nullable=True),
        sa.Column("disk", sa.Integer(), nullable=True),
        sa.Column("auto_scaling", sa.Text(), nullable=True),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("enable_analytics", sa.Boolean(), nullable=False),
        sa.Column("auto_deploy", sa.Boolean(), nullable=False),
        sa.Column("pr_preview", sa.Boolean(), nullable=False),
        sa.Column("env", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("current_deployment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("latest_deployment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("total_deployments", sa.Integer(), nullable=False),
        sa.Column("success_deployments", sa.Integer(), nullable=False),
        sa.Column("failed_deployments", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project")),
        sa.UniqueConstraint("name", name=op.f("uq_project_name")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("project", schema=None) as batch_op:
        batch_op.create_index("ix_project_org_id_id", ["org_id", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_project_repository_key"), ["repository_key"], unique=False)

    op.create_table(
        "repository",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner_key", sa.Text(), nullable=False),
        sa.Column("name_key", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("default_branch", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_repository")),
        sa.UniqueConstraint("owner_key", "name_key", name=op.f("uq_repository_owner_key_name_key")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("repository", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_repository_org_id"), ["org_id"], unique=False)

    op.create_table(
        "custom_domain",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("certificate_status", sa.Text(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("missed", sa.Integer(), nullable=False),
        sa.Column("next_check_at", sa.BigInteger(), nullable=False),
        sa.Column("certificate_at", sa.BigInteger(), nullable=True),
        sa.Column("verified_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_custom_domain_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_custom_domain")),
        sa.UniqueConstraint("org_id", "domain", name=op.f("uq_custom_domain_org_id_domain")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("custom_domain", schema=None) as batch_op:
        batch_op.create_index("ix_custom_domain_domain", ["domain"], unique=False)
        batch_op.create_index("ix_custom_domain_project_id", ["project_id"], unique=False)
        batch_op.create_index("ix_custom_domain_status_next_check_at", ["status", "next_check_at"], unique=False)
        batch_op.create_index(
            "uq_custom_domain_verified",
            ["domain"],
            unique=True,
            sqlite_where=sa.text("status = 'verified'"),
            postgresql_where=sa.text("status = 'verified'"),
        )

    op.create_table(
        "deployment",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("preview_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("repository_name", sa.Text(), nullable=True),
        sa.Column("branch", sa.Text(), nullable=True),
        sa.Column("commit_sha", sa.Text(), nullable=True),
        sa.Column("actor_user_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("file_count", sa.Integer(), nullable=True),
        sa.Column("plan", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_deployment_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deployment")),
        sa.UniqueConstraint("uuid", name=op.f("uq_deployment_uuid")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("deployment", schema=None) as batch_op:
        batch_op.create_index("ix_deployment_digest", ["digest"], unique=False)
        batch_op.create_index("ix_deployment_project_id_id", ["project_id", "id"], unique=False)
        batch_op.create_index("ix_deployment_status", ["status"], unique=False)

    op.create_table(
        "header_rule",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_header_rule_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_header_rule")),
        sa.UniqueConstraint("project_id", "place", name=op.f("uq_header_rule_project_id_place")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "preview",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("is_fork", sa.Boolean(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("repository_name", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("commit_sha", sa.Text(), nullable=False),
        sa.Column("current_deployment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_preview_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preview")),
        sa.UniqueConstraint("name", name=op.f("uq_preview_name")),
        sa.UniqueConstraint("project_id", "number", name=op.f("uq_preview_project_id_number")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "project_name",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_project_name_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project_name")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("project_name", schema=None) as batch_op:
        batch_op.create_index("ix_project_name_project_id", ["project_id"], unique=False)
        batch_op.create_index("ix_project_name_until", ["until"], unique=False)

    op.create_table(
        "redirect_rule",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_redirect_rule_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_redirect_rule")),
        sa.UniqueConstraint("project_id", "place", name=op.f("uq_redirect_rule_project_id_place")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "project_log",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("deployment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["deployment_id"], ["deployment.id"], name=op.f("fk_project_log_deployment_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project_log")),
        sa.UniqueConstraint("deployment_id", "seq", name=op.f("uq_project_log_deployment_id_seq")),
        sqlite_autoincrement=True,
    )
