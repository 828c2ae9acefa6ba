"""Tables of users, organizations, memberships, tokens and sessions."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, UniqueConstraint

from moorage.core.db.schema import Id, id_column, millis, table, text

account = table(
    "account",
    id_column(),
    text("email", unique=True),  # lower case
    text("username"),
    text("first_name"),
    text("last_name"),
    text("avatar_url", nullable=True),
    Column("mfa_enabled", Boolean, nullable=False),
    text("status"),  # Approval
    millis("suspended_at", nullable=True),
    millis("terms_accepted_at", nullable=True),
    millis("operator_at", nullable=True),  # since when the user is an operator of the platform
    millis("created_at"),
    millis("updated_at"),
)

account_login = table(
    "account_login",
    id_column(),
    Column("user_id", Id, ForeignKey("account.id", ondelete="CASCADE"), nullable=False, index=True),
    text("issuer"),
    text("subject"),
    millis("created_at"),
    UniqueConstraint("issuer", "subject"),
)

organization = table(
    "organization",
    id_column(),
    text("name"),
    text("slug", unique=True),
    text("plan"),
    Column("card_verified", Boolean, nullable=False),
    text("stripe_customer", nullable=True, unique=True),
    millis("card_event_at"),  # Stripe's events may arrive out of order: older ones are dropped
    millis("plan_event_at"),
    millis("suspended_at", nullable=True),
    Column("create_on_push", Boolean, nullable=False),  # a push to a repository that nothing uses creates a project
    millis("deleted_at", nullable=True),
    millis("created_at"),
    millis("updated_at"),
)

membership = table(
    "membership",
    id_column(),
    Column("org_id", Id, ForeignKey("organization.id", ondelete="CASCADE"), nullable=False),
    Column("user_id", Id, ForeignKey("account.id", ondelete="CASCADE"), nullable=False, index=True),
    text("role"),
    millis("joined_at"),
    UniqueConstraint("org_id", "user_id"),
)

invitation = table(
    "invitation",
    id_column(),
    Column("org_id", Id, ForeignKey("organization.id", ondelete="CASCADE"), nullable=False, index=True),
    text("email", index=True),
    text("role"),
    text("status"),  # InvitationStatus
    Column("invited_by", Id, nullable=True),
    millis("created_at"),
    millis("updated_at"),
    millis("expires_at"),
)

api_token = table(
    "api_token",
    id_column(),
    Column("org_id", Id, ForeignKey("organization.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("user_id", Id, ForeignKey("account.id", ondelete="CASCADE"), nullable=False, index=True),
    text("name"),
    text("role"),
    text("hash", unique=True),  # SHA-256; the token itself is not stored
    text("preview"),
    millis("created_at"),
    millis("expires_at", nullable=True),
    millis("last_used_at", nullable=True),
    millis("revoked_at", nullable=True),
)

login_session = table(
    "login_session",
    id_column(),
    text("jti", unique=True),  # id of the session in its token
    Column("user_id", Id, ForeignKey("account.id", ondelete="CASCADE"), nullable=False, index=True),
    text("device"),
    text("address", nullable=True),
    millis("created_at"),
    millis("last_seen_at"),  # to within ten minutes
    millis("expires_at"),
)

notification = table(
    "notification",
    id_column(),
    Column("user_id", Id, ForeignKey("account.id", ondelete="CASCADE"), nullable=False),
    Column("org_id", Id, nullable=True),
    text("kind"),
    text("title"),
    text("body"),
    text("dedupe_key", unique=True),  # prevents duplicates when a job runs again
    millis("created_at"),
    millis("read_at", nullable=True),
    Index("ix_notification_feed", "user_id", "id"),
)

# Values of the platform itself, such as the hash of the setup token.
platform_fact = table("platform_fact", id_column(), text("name", unique=True), text("value"), millis("updated_at"))
