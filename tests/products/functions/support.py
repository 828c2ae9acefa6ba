"""Archives, uploads and clients for the tests of functions."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.builders import make_org, make_token, make_user
from tests.client import Client, Reply

from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Plan
from moorage.core.artifacts.tables import artifact_ref
from moorage.core.db.query import Query
from moorage.core.db.store import Database
from moorage.settings import Settings

NODE = {"index.js": "exports.main = () => ({ statusCode: 200, body: 'hello' });\n"}
PYTHON = {"main.py": "def main(params):\n    return {'statusCode': 200, 'body': 'hello'}\n"}
EDGE = "----edge9"


def zip_of(
    files: Mapping[str, str | bytes],
    *,
    modes: Mapping[str, int] | None = None,
    moment: int = 2020,
    stored: bool = False,
) -> bytes:
    """Return an archive in the usual form of a ZIP tool."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (moment, 1, 1, 0, 0, 0))
            entry.external_attr = (modes or {}).get(name, 0o100644) << 16
            if name.endswith("/"):
                entry.external_attr = 0o040755 << 16
            entry.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return made.getvalue()


def form(archive: bytes | None, *, sent_as: str = "code", **fields: str) -> dict[str, Any]:
    """Return the body and the content type of an upload."""
    parts = [f'--{EDGE}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{fields[key]}\r\n' for key in fields]
    body = "".join(parts).encode()
    if archive is not None:
        disposition = f'Content-Disposition: form-data; name="{sent_as}"; filename="code.zip"'
        body += f"--{EDGE}\r\n{disposition}\r\nContent-Type: application/zip\r\n\r\n".encode() + archive + b"\r\n"
    return {
        "content": body + f"--{EDGE}--\r\n".encode(),
        "headers": {"Content-Type": f"multipart/form-data; boundary={EDGE}"},
    }


@dataclass(frozen=True)
class Team:
    """An organization, and a client of one of its members."""

    org_id: int
    api: Client

    async def create(self, name: str = "hello", files: Mapping[str, str | bytes] | None = None, **fields: str) -> Reply:
        """Create a function, by default in Python."""
        sent = {"name": name, "runtime": "python", **fields}
        return await self.api.post("/v1/functions", **form(zip_of(files or PYTHON), **sent))

    async def upload(self, archive: bytes | None, *, sent_as: str = "code", **fields: str) -> Reply:
        """Create a function from bytes that need not be an archive."""
        sent = {"name": "hello", "runtime": "python", **fields}
        return await self.api.post("/v1/functions", **form(archive, sent_as=sent_as, **sent))

    async def deploy(self, name: str = "hello", files: Mapping[str, str | bytes] | None = None) -> Reply:
        return await self.api.post(f"/v1/functions/{name}/deploy", **form(zip_of(files or PYTHON)))

    async def versions(self, name: str = "hello") -> list[int]:
        listed = await self.api.get(f"/v1/functions/{name}/versions")
        return [version["version"] for version in listed.data]


async def make_team(asgi: Any, db: Database, *, role: Role | None = None, plan: Plan = Plan.PRO) -> Team:
    owner = await make_user(db)
    org = await make_org(db, owner, plan=plan)
    return Team(org.id, Client(asgi, token=await make_token(db, owner, org.id, role=role)))


async def references(db: Database) -> list[tuple[int, str, str]]:
    """Return every reference to an artifact: organization, owner, digest."""
    columns = (artifact_ref.c.org_id, artifact_ref.c.owner, artifact_ref.c.digest)
    return await db.read(
        lambda tx: tx.all(Query(artifact_ref.select().with_only_columns(*columns).order_by(*columns), _triple))
    )


def _triple(org_id: int, owner: str, digest: str) -> tuple[int, str, str]:
    return org_id, owner, digest


_DELETED = re.compile(r"\.old-[0-9a-f]{16}")


def code_folders(settings: Settings) -> set[str]:
    """Return the names in the code folder, except its lock and folders that are deleted in the background."""
    root = settings.folder("code")
    names = {path.name for path in root.iterdir()} if root.exists() else set()
    return {name for name in names if name != ".lock" and not _DELETED.fullmatch(name)}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def actions(team: Team) -> list[str]:
    """Return the actions on functions in the activity feed, newest first."""
    feed = await team.api.get("/v1/activity")
    return [row["action"] for row in feed.data["items"] if row["action"].startswith("function.")]
