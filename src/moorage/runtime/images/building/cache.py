"""Cache of layers by the inputs of their instruction; every project has its own.

A row refers to its layer as an artifact. The rows of a cache are bounded in number and size, the least recently used
ones are removed first, and rows that no build used for two weeks are collected.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from moorage.core.artifacts import service as artifacts
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS
from moorage.core.kit.records import dataclass
from moorage.errors import NotFound
from moorage.runtime.images.building import tables
from moorage.runtime.images.building.tables import CachedLayer

MAX_BYTES = 4 * 2**30  # of the layers of one cache
MAX_ROWS = 400
UNUSED_MS = 14 * DAY_MS
BATCH = 200


def key_of(*inputs: object) -> str:
    """Return the key of an instruction; its inputs are texts, numbers, lists and mappings of them."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


@dataclass(frozen=True)
class LayerCache:
    """Cache of one project."""

    db: Database
    store: ArtifactStore
    org_id: int
    name: str
    is_used: bool  # False to build without cached layers

    async def find(self, key: str) -> CachedLayer | None:
        """Return a layer that is still stored, and record its use."""
        if not self.is_used:
            return None
        return await self.db.write(partial(_use, org_id=self.org_id, cache=self.name, key=key))

    async def add(self, key: str, digest: str, size: int) -> CachedLayer:
        """Record a layer that the cache has a reference to, or "" for an unchanged tree."""
        add = partial(_add, org_id=self.org_id, cache=self.name, key=key, digest=digest, size=size)
        return await self.db.write(add)

    async def put(self, path: Path) -> tuple[str, int]:
        """Store a layer file with a reference of this cache; return digest and size."""
        digest = await _digest_of(path)
        stored = await self.store.put_file(self.org_id, path, owner=owner_of(self.name, digest))
        return stored.digest, stored.size

    async def has(self, digest: str) -> bool:
        """Return whether the organization has an artifact, and keep it for this cache."""
        return await self.db.write(partial(_refer, org_id=self.org_id, cache=self.name, digest=digest))

    async def trim(self) -> int:
        """Remove rows over the limits; return their number."""
        return await self.db.write(partial(trim, org_id=self.org_id, cache=self.name))


def owner_of(cache: str, digest: str) -> str:
    return f"layers:{cache}:{digest}"


async def _digest_of(path: Path) -> str:
    import asyncio

    def read() -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return await asyncio.to_thread(read)


def _use(tx: Tx, org_id: int, cache: str, key: str) -> CachedLayer | None:
    row = tx.find(tables.FIND, org_id=org_id, cache=cache, key=key)
    if row is None:
        return None
    if row.digest and not _refer(tx, org_id, cache, row.digest):
        tx.run(tables.DROP, org_id=org_id, id=row.id)
        return None
    tx.run(tables.USE, org_id=org_id, cache=cache, key=key, now=tx.now)
    return row


def _refer(tx: Tx, org_id: int, cache: str, digest: str) -> bool:
    try:
        artifacts.refer(tx, org_id, digest, owner_of(cache, digest))
    except NotFound:
        return False
    return True


def _add(tx: Tx, org_id: int, cache: str, key: str, digest: str, size: int) -> CachedLayer:
    previous = tx.find(tables.FIND, org_id=org_id, cache=cache, key=key)
    if previous is not None:
        tx.run(tables.DROP, org_id=org_id, id=previous.id)
        if previous.digest != digest:
            _unrefer(tx, org_id, cache, previous.digest)
    tx.find(
        tables.ADD, org_id=org_id, cache=cache, key=key, digest=digest, size=size, created_at=tx.now, used_at=tx.now
    )
    row = tx.find(tables.FIND, org_id=org_id, cache=cache, key=key)
    assert row is not None
    return row


def trim(tx: Tx, org_id: int, cache: str, most_bytes: int = MAX_BYTES, most_rows: int = MAX_ROWS) -> int:
    """Remove the least recently used rows of a cache over the limits; return their number."""
    kept: set[str] = set()
    used, removed = 0, list[CachedLayer]()
    for number, row in enumerate(tx.all(tables.ALL, org_id=org_id, cache=cache)):
        used += 0 if row.digest in kept else row.size
        if number >= most_rows or used > most_bytes:
            removed.append(row)
        kept.add(row.digest)
    _remove(tx, org_id, removed)
    return len(removed)


def drop(tx: Tx, org_id: int, cache: str) -> None:
    """Remove a whole cache, and those of its forks. Safe to repeat."""
    _remove(tx, org_id, tx.all(tables.OF_OWNER, org_id=org_id, cache=cache, forks=f"{cache}-pr-"))


@across_organizations("collection looks at what no organization uses")
def sweep(tx: Tx) -> None:
    """Remove rows that no build used for a long time."""
    for row in tx.all(tables.UNUSED, before=tx.trusted_now - UNUSED_MS, most=BATCH):
        _remove(tx, row.org_id, [row])


def _remove(tx: Tx, org_id: int, rows: Sequence[CachedLayer]) -> None:
    for row in rows:
        tx.run(tables.DROP, org_id=org_id, id=row.id)
        _unrefer(tx, org_id, row.cache, row.digest)


def _unrefer(tx: Tx, org_id: int, cache: str, digest: str) -> None:
    if digest and tx.find(tables.HAS_DIGEST, org_id=org_id, cache=cache, digest=digest) is None:
        artifacts.unrefer(tx, org_id, owner_of(cache, digest))
