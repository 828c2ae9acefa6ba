"""Helpers that inspect and damage stored artifacts."""

from __future__ import annotations

import time
from pathlib import Path

from moorage.core.artifacts.objects import Objects
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.kit.clock import DAY_MS


def real_now_ms() -> int:
    """Return the real time, which objects have as their modification time."""
    return time.time_ns() // 1_000_000


def stored_keys(objects: Objects) -> list[str]:
    return [key for page in objects.older_than(real_now_ms() + DAY_MS) for key in page]


async def fetched(artifacts: ArtifactStore, org_id: int, digest: str, folder: Path) -> bytes:
    await artifacts.fetch(org_id, digest, folder / "fetched")
    return (folder / "fetched").read_bytes()


def replace_object(objects: Objects, key: str, content: bytes | None) -> None:
    """Corrupt an object as a failing disk does."""
    if content is None:
        objects.delete(key)
    else:
        objects.put(key, content, len(content))
