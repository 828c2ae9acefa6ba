"""Revoke the tokens of removed members and the invitations that their senders could not send now."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

REVOKE_TOKENS = """
UPDATE api_token SET revoked_at = :now
WHERE revoked_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM membership AS m WHERE m.org_id = api_token.org_id AND m.user_id = api_token.user_id
)
"""
REVOKE_INVITATIONS = """
UPDATE invitation SET status = 'revoked', updated_at = :now
WHERE status = 'pending' AND NOT EXISTS (
    SELECT 1 FROM membership AS m
    WHERE m.org_id = invitation.org_id AND m.user_id = invitation.invited_by
      AND (m.role = 'owner' OR (m.role = 'admin' AND invitation.role <> 'owner'))
)
"""


def upgrade() -> None:
    now = int(time.time() * 1000)
    for statement in (REVOKE_TOKENS, REVOKE_INVITATIONS):
        op.execute(sa.text(statement).bindparams(now=now))
