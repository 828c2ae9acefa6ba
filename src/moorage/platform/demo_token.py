"""The API token that a development platform keeps in its data folder.

A session token expires in a day, and needs the organization's id as soon as its user has a second organization. This
token is bound to the demo organization, so that commands of the docs work with it at any time.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from moorage.accounts.identity import logins
from moorage.core.db.store import Database
from moorage.platform import folders, keys


async def ensure(db: Database) -> str:
    """Return the token; create one, in a file of mode 0600, if it is missing or revoked."""
    path = folders.demo_token_path(db.env.settings)
    kept = await asyncio.to_thread(_read, path)
    token = await db.write(lambda tx: logins.demo_token(tx, kept))
    if token != kept:
        await asyncio.to_thread(keys.write_private, path, token + "\n")
    return token


async def remove(db: Database) -> None:
    """Revoke the token and delete its file: production has no demo organization."""
    await db.write(logins.revoke_demo_tokens)
    await asyncio.to_thread(folders.demo_token_path(db.env.settings).unlink, missing_ok=True)


def _read(path: Path) -> str:
    """Return the kept token; none if the file is readable for others."""
    try:
        return path.read_text().strip() if path.stat().st_mode & 0o077 == 0 else ""
    except (FileNotFoundError, UnicodeDecodeError):
        return ""
