"""Variables of functions move to the vault, encrypted, and their column goes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

from moorage.core.kit.crypto import CannotDecrypt, KeyRing
from moorage.errors import CannotStart

revision = "0016"
down_revision = "0015"

_functions = sa.table("function", sa.column("id"), sa.column("org_id"), sa.column("env"), sa.column("updated_at"))
_secrets = sa.table(
    "vault_secret",
    sa.column("id"),
    sa.column("org_id"),
    sa.column("resource"),
    sa.column("name"),
    sa.column("ciphertext"),
    sa.column("updated_at"),
)


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete = ON")  # Freed pages keep their content otherwise.
    stored = connection.execute(sa.select(_functions)).all()
    if stored:
        ring = _ring(connection)
        for row in stored:
            resource, name = f"function-env:{row.id}", "env"
            ciphertext = ring.encrypt(row.env, place=f"{row.org_id}/{resource}/{name}")
            values = {"org_id": row.org_id, "resource": resource, "name": name, "ciphertext": ciphertext}
            connection.execute(_secrets.insert(), {**values, "updated_at": row.updated_at})
        connection.execute(_functions.update().values(env=""))
    # Answers that were kept for repeated requests show variables too.
    op.execute("UPDATE idempotency_key SET answer = NULL WHERE route LIKE '%/v1/functions%'")
    op.drop_column("function", "env")


def _ring(connection: sa.Connection) -> KeyRing:
    """Return the keys of the platform; raises where they do not fit the secrets that the store has already."""
    ring = context.config.attributes.get("ring")
    if not isinstance(ring, KeyRing):
        raise CannotStart("functions have variables to encrypt, and the migration was started without the master key")
    first = connection.execute(sa.select(_secrets).order_by(_secrets.c.id).limit(1)).first()
    if first is not None:
        try:
            ring.decrypt(first.ciphertext, place=f"{first.org_id}/{first.resource}/{first.name}")
        except CannotDecrypt as error:
            raise CannotStart(
                f"MOORAGE_MASTER_KEY: does not fit this store: {error}. Start with the key that its secrets were "
                "encrypted under; several may be given, separated by commas."
            ) from error
    return ring
