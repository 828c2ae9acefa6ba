"""Unpacked layers of image builds on this machine, for use as lower folders of a sandbox's root.

    image-layers/<digest>/files    files of the layer, with whiteouts as overlay mounts have them
    image-layers/.new-*            layers in progress

The folders are a cache: a missing one is unpacked from the artifact store. A build holds a shared lock on each folder
that it uses; removal needs an exclusive one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.images.building.files import packing
from moorage.runtime.sandbox.rootfs.spec import CHANGES, OVERLAY_WORK

MAX_TOTAL_BYTES = 6 * 2**30
SIZE = "size"


class LayerFolders:
    """Layers of all projects; a tenant never reads these folders except through its own image."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextlib.contextmanager
    def new(self) -> Iterator[Path]:
        """Yield a folder for a layer in progress; a folder that is not published is removed."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = self.root / f".new-{os.getpid()}-{secrets.token_hex(6)}"
        folder.mkdir(mode=0o700)
        try:
            (folder / CHANGES).mkdir(mode=0o755)
            yield folder
        finally:
            folders.remove(folder)

    def publish(self, folder: Path, digest: str) -> None:
        """Give a new layer its name. Safe to repeat."""
        folders.remove(folder / OVERLAY_WORK)
        (folder / SIZE).write_text(str(folders.used_bytes(folder / CHANGES)))
        with contextlib.suppress(OSError):  # Another build published the same layer.
            folder.rename(self.root / digest)

    def unpack(self, archive: Path, digest: str) -> None:
        with self.new() as folder:
            (folder / CHANGES).rmdir()
            packing.unpack(archive, folder / CHANGES)
            self.publish(folder, digest)

    def hold(self, digest: str, stack: contextlib.ExitStack) -> Path | None:
        """Return the files of a layer, locked until the stack is closed; None if they are not on this machine."""
        folder = self.root / digest
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        stack.callback(os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        if not (folder / CHANGES).is_dir():
            return None
        os.utime(folder)
        return folder / CHANGES

    def trim(self, most_bytes: int = MAX_TOTAL_BYTES) -> int:
        """Remove the least recently used layers over the limit, and leftovers of dead processes."""
        removed = used = 0
        known = [path for path in self.root.iterdir() if path.is_dir()] if self.root.is_dir() else []
        for path in sorted(known, key=_used_at, reverse=True):
            if path.name.startswith(".new-"):
                if not Path(f"/proc/{path.name.split('-')[1]}").exists():
                    folders.remove(path)
                continue
            used += _size(path)
            if used > most_bytes:
                removed += self._remove(path)
        return removed

    def _remove(self, path: Path) -> bool:
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                doomed = self.root / f".new-0-{secrets.token_hex(6)}"
                path.rename(doomed)
                folders.remove(doomed)
            except BlockingIOError:
                return False
            finally:
                os.close(handle)
        return True


def _used_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size(path: Path) -> int:
    try:
        return int((path / SIZE).read_text())
    except (OSError, ValueError):
        return folders.used_bytes(path)
