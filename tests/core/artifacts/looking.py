"""What the tests of artifacts look at, and what they do behind the store's back."""

from __future__ import annotations

import time
from pathlib import Path

from moorage.core.artifacts.objects import Objects
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.kit.clock import DAY_MS


def real_now_ms() -> int:
    """Return the time that objects are stamped with, whatever the test's clock says."""
    return time.time_ns() // 1_000_000


def stored_keys(objects: Objects) -> list[str]:
    return [key for page in objects.older_than(real_now_ms() + DAY_MS) for key in page]


async def fetched(artifacts: ArtifactStore, org_id: int, digest: str, folder: Path) -> bytes:
    await artifacts.fetch(org_id, digest, folder / "fetched")
    return (folder / "fetched").read_bytes()


def replace_object(objects: Objects, key: str, content: bytes | None) -> None:
    """Do to an object what a failing disk does."""
    if content is None:
        objects.delete(key)
    else:
        objects.put(key, content, len(content))
