"""monitors, what their checks found, alerts and what is told about them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "alert",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("monitor_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("condition", sa.Text(), nullable=False),
        sa.Column("threshold", sa.Float(), nullable=False),
        sa.Column("duration_min", sa.Integer(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("by_email", sa.Boolean(), nullable=False),
        sa.Column("by_slack", sa.Boolean(), nullable=False),
        sa.Column("by_webhook", sa.Boolean(), nullable=False),
        sa.Column("slack_off", sa.Text(), nullable=True),
        sa.Column("webhook_off", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("is_enabled", sa.Boolean(), nullable=False),
        sa.Column("acknowledged", sa.Boolean(), nullable=False),
        sa.Column("last_triggered_at", sa.BigInteger(), nullable=True),
        sa.Column("pending_since", sa.BigInteger(), nullable=True),
        sa.Column("good_samples", sa.Integer(), nullable=False),
        sa.Column("good_since", sa.BigInteger(), nullable=True),
        sa.Column("fired_at", sa.Text(), nullable=False),
        sa.Column("is_flapping", sa.Boolean(), nullable=False),
        sa.Column("incident_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("alert", schema=None) as batch_op:
        batch_op.create_index("ix_alert_monitor_id", ["monitor_id"], unique=False)

    op.create_table(
        "alert_incident",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("monitor_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("alert_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("is_flapping", sa.Boolean(), nullable=False),
        sa.Column("observed", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("resolved_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_incident")),
        sa.UniqueConstraint("uuid", name=op.f("uq_alert_incident_uuid")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("alert_incident", schema=None) as batch_op:
        batch_op.create_index("ix_alert_incident_monitor_id", ["monitor_id", "started_at"], unique=False)

    op.create_table(
        "alert_notice",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("monitor_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("alert_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("incident_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("about", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("delivered_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_notice")),
        sa.UniqueConstraint(
            "about", "kind", "channel", "target", name=op.f("uq_alert_notice_about_kind_channel_target")
        ),
        sa.UniqueConstraint("uuid", name=op.f("uq_alert_notice_uuid")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("alert_notice", schema=None) as batch_op:
        batch_op.create_index("ix_alert_notice_alert_id", ["alert_id"], unique=False)
        batch_op.create_index("ix_alert_notice_created_at", ["created_at"], unique=False)

    op.create_table(
        "certificate_notice",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("monitor_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("threshold_days", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_certificate_notice")),
        sa.UniqueConstraint(
            "monitor_id",
            "fingerprint",
            "threshold_days",
            name=op.f("uq_certificate_notice_monitor_id_fingerprint_threshold_days"),
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "heartbeat",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("monitor_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("slot", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("response_ms", sa.Integer(), nullable=True),
        sa.Column("code", sa.Integer(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_heartbeat")),
        sa.UniqueConstraint("monitor_id", "slot", name=op.f("uq_heartbeat_monitor_id_slot")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("heartbeat", schema=None) as batch_op:
        batch_op.create_index("ix_heartbeat_slot", ["slot"], unique=False)

    op.create_table(
        "monitor",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("interval_s", sa.Integer(), nullable=False),
        sa.Column("timeout_ms", sa.Integer(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("http_method", sa.Text(), nullable=False),
        sa.Column("status_codes", sa.Text(), nullable=False),
        sa.Column("keyword", sa.Text(), nullable=True),
        sa.Column("has_headers", sa.Boolean(), nullable=False),
        sa.Column("has_body", sa.Boolean(), nullable=False),
        sa.Column("expire_cert_notify", sa.Boolean(), nullable=False),
        sa.Column("ignore_tls_error", sa.Boolean(), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("from_at", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("prober", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_monitor")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("monitor", schema=None) as batch_op:
        batch_op.create_index("ix_monitor_org_id", ["org_id"], unique=False)
        batch_op.create_index("ix_monitor_prober", ["status", "prober"], unique=False)
        batch_op.create_index("ix_monitor_project_id", ["project_id"], unique=False)

    op.create_table(
        "monitor_pause",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("monitor_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_monitor_pause")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("monitor_pause", schema=None) as batch_op:
        batch_op.create_index("ix_monitor_pause_monitor_id", ["monitor_id"], unique=False)

    op.create_table(
        "monitor_rollup",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("monitor_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("span_s", sa.Integer(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("up", sa.Integer(), nullable=False),
        sa.Column("down", sa.Integer(), nullable=False),
        sa.Column("response_sum", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_monitor_rollup")),
        sa.UniqueConstraint("monitor_id", "span_s", "start", name=op.f("uq_monitor_rollup_monitor_id_span_s_start")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("monitor_rollup", schema=None) as batch_op:
        batch_op.create_index("ix_monitor_rollup_start", ["span_s", "start"], unique=False)

    op.create_table(
        "monitor_state",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("org_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("monitor_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("last_status", sa.Text(), nullable=True),
        sa.Column("last_response_ms", sa.Integer(), nullable=True),
        sa.Column("last_code", sa.Integer(), nullable=True),
        sa.Column("last_at", sa.BigInteger(), nullable=True),
        sa.Column("last_slot", sa.BigInteger(), nullable=True),
        sa.Column("lag_ms", sa.Integer(), nullable=True),
        sa.Column("missed", sa.Integer(), nullable=False),
        sa.Column("ssl_subject", sa.Text(), nullable=True),
        sa.Column("ssl_issuer", sa.Text(), nullable=True),
        sa.Column("ssl_valid_to", sa.BigInteger(), nullable=True),
        sa.Column("ssl_fingerprint", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_monitor_state")),
        sa.UniqueConstraint("monitor_id", name=op.f("uq_monitor_state_monitor_id")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "prober",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_prober")),
        sa.UniqueConstraint("token", name=op.f("uq_prober_token")),
        sqlite_autoincrement=True,
    )
