"""The origin of a secret: a secret that a database link made is revealed to admins only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

# A value that a member set in place of the linked one is marked too: ciphertexts cannot be compared here.
MARK_LINKED = """
UPDATE vault_secret SET origin = (
    SELECT 'database:' || d.id FROM database AS d
    WHERE d.org_id = vault_secret.org_id
      AND 'project:' || d.project_id = vault_secret.resource
      AND d.secret_name = vault_secret.name
      AND d.deleted_at IS NULL
    ORDER BY d.id DESC LIMIT 1
)
WHERE resource LIKE 'project:%'
"""


def upgrade() -> None:
    op.add_column("vault_secret", sa.Column("origin", sa.Text(), nullable=True))
    op.execute(MARK_LINKED)
