"""Volumes of this machine: one folder each, limited by a quota of the file system if it has them."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from moorage.core.kit import folders
from moorage.core.kit.processes import deletions
from moorage.runtime.sandbox.usage import quotas

MB = 2**20
TRASH_PREFIX = "volume-"


class LocalVolumes:
    def __init__(self, root: Path, trash: Path) -> None:
        self._root = root
        self._trash = trash

    async def ensure(self, volume: str, *, uid: int, size_mb: int, org_id: int = 0) -> None:
        await asyncio.to_thread(_create, self._root / volume, uid)
        await asyncio.to_thread(quotas.limit, self._root / volume, size_mb * MB)

    async def has_files(self, volume: str) -> bool:
        return await asyncio.to_thread(_has_files, self._root / volume)

    async def used_bytes(self, volume: str) -> int:
        return await asyncio.to_thread(folders.used_bytes, str(self._root / volume))

    async def names(self) -> list[str]:
        return await asyncio.to_thread(lambda: sorted(path.name for path in _folders_in(self._root)))

    async def discard(self, owner: str) -> None:
        await asyncio.to_thread(self._discard, owner)

    async def purge(self, owner: str) -> None:
        await asyncio.to_thread(self._purge, owner)

    def _discard(self, owner: str) -> None:
        self._trash.mkdir(mode=0o700, exist_ok=True)
        for volume in _folders_in(self._root):
            if _is_of(owner, volume.name):
                target = self._trash / f"{TRASH_PREFIX}{volume.name}"
                if target.exists():
                    target = target.with_name(f"{target.name}-{secrets.token_hex(4)}")
                shutil.move(volume, target)

    def _purge(self, owner: str) -> None:
        for path in _folders_in(self._trash):
            if path.name.startswith(TRASH_PREFIX) and _is_of(owner, path.name.removeprefix(TRASH_PREFIX)):
                deletions.delete(path)


def _create(folder: Path, uid: int) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not folder.is_dir():
        folder.mkdir(mode=0o700)
        if uid:
            folders.change_owner(folder, uid)


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and next(folder.iterdir(), None) is not None


def _folders_in(root: Path) -> Iterator[Path]:
    return (path for path in list(root.iterdir()) if path.is_dir()) if root.is_dir() else iter(())


def _is_of(owner: str, volume: str) -> bool:
    return volume == owner or volume.startswith(f"{owner}-")
