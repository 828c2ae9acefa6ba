"""Writes a new layer folder on top of a tree, without mounts: COPY, ADD and WORKDIR use it."""

from __future__ import annotations

import math
import os
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from moorage.runtime.images.building.files.tree import Node, Tree, TreeError

Parts = tuple[str, ...]
Owner = tuple[int, int]
FOLDER_MODE = 0o755
_CHECK_BYTES, _CHECK_ENTRIES = 32 * 2**20, 1_000
_ENTRY_BYTES = 4_096
_BLOCK = 2**20


class Budget:
    """Limits of one step; `check_room` raises if so many bytes would use the disk's reserve."""

    def __init__(
        self,
        most_bytes: int,
        most_entries: int,
        check_room: Callable[[int], None],
        *,
        used_bytes: int = 0,  # by earlier steps
        deadline: float = math.inf,  # time.monotonic()
    ) -> None:
        self._most_bytes = most_bytes
        self._most_entries = most_entries
        self._check_room = check_room
        self._deadline = deadline
        self._bytes = used_bytes
        self._entries = self._read = 0
        self._checked = (used_bytes, 0)

    def read(self, size: int) -> None:
        """Count bytes of an archive, also bytes of members without a file; raises TreeError."""
        self._check_time()
        self._read += size
        if self._read > self._most_bytes:
            raise self._too_large()

    def add(self, size: int) -> None:
        """Count a file before it is written; holes count as well. Raises TreeError."""
        self._check_time()
        self._bytes += size + _ENTRY_BYTES
        self._entries += 1
        self.check_count(self._entries)
        if self._bytes > self._most_bytes:
            raise self._too_large()
        checked_bytes, checked_entries = self._checked
        if (
            size > _CHECK_BYTES
            or self._bytes - checked_bytes > _CHECK_BYTES
            or self._entries - checked_entries > _CHECK_ENTRIES
        ):
            self._checked = (self._bytes, self._entries)
            self._check_room(size)

    def check_count(self, entries: int) -> None:
        if entries > self._most_entries:
            raise TreeError(f"the step has more than {self._most_entries:,} files")

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise TreeError("the build took too long")

    def _too_large(self) -> TreeError:
        return TreeError(f"the new layers of this build have more than {self._most_bytes // 2**20:,} MB")


class LayerWriter:
    def __init__(self, folder: Path, lowers: Sequence[Path], budget: Budget) -> None:
        """`folder` is empty. Without root, `owners` has the owners that the disk cannot have."""
        self.tree = Tree([*lowers, folder])
        self.owners: dict[str, Owner] = {}
        self.is_empty = True
        self.budget = budget
        self._folder = str(folder)
        self._is_root = os.geteuid() == 0
        self._present: set[Parts] = {()}  # folders of the layer

    def ensure_folder(self, parts: Parts, owner: Owner = (0, 0), mode: int = FOLDER_MODE) -> bool:
        """Create a folder and those above it; returns whether it is new. Existing ones stay as they are."""
        if parts in self._present:
            return False
        node = self.tree.find(parts)
        if node is not None:
            if not node.is_folder:
                raise TreeError(f"{node.name} is not a folder in the image")
            return False
        self.ensure_folder(parts[:-1], owner, mode)
        self._mirror(parts[:-1])
        self._make_folder(parts, owner, mode, time.time_ns())
        return True

    def put_folder(self, parts: Parts, owner: Owner, mode: int, mtime_ns: int) -> None:
        """Create a folder, or change the attributes of an existing one."""
        self.ensure_folder(parts, owner, mode)
        self._mirror(parts)
        self._set_attributes(parts, owner, mode, mtime_ns)

    def put_file(self, parts: Parts, source: str, owner: Owner, mode: int, mtime_ns: int) -> None:
        self.budget.add(os.stat(source, follow_symlinks=False).st_size)
        path = self._place(parts)
        shutil.copyfile(source, path, follow_symlinks=False)
        self._set_attributes(parts, owner, mode, mtime_ns)

    def put_stream(self, parts: Parts, content: IO[bytes], size: int, owner: Owner, mode: int, mtime_ns: int) -> None:
        self.budget.add(size)
        with open(self._place(parts), "xb") as file:
            while block := content.read(_BLOCK):
                file.write(block)
        self._set_attributes(parts, owner, mode, mtime_ns)

    def put_link(self, parts: Parts, target: str, owner: Owner, mtime_ns: int) -> None:
        self.budget.add(0)
        os.symlink(target, self._place(parts))
        self._set_attributes(parts, owner, None, mtime_ns)

    def put_hard_link(self, parts: Parts, first: Parts) -> None:
        self.budget.add(0)
        node = self.tree.find(first)
        if node is None or not node.path.startswith(f"{self._folder}/") or not node.is_file:
            raise TreeError(f"the archive links {'/'.join(parts)[:200]!r} to a file that it does not have")
        os.link(node.path, self._place(parts), follow_symlinks=False)
        if (owner := self.owners.get("/".join(first))) is not None:
            self.owners["/".join(parts)] = owner

    def put_node(self, parts: Parts, node: Node, owner: Owner, mode: int | None) -> None:
        """Copy a file, link, pipe or folder of another tree."""
        mode = node.mode if mode is None else mode
        if node.is_folder:
            if self.ensure_folder(parts, owner, mode):
                self._set_attributes(parts, owner, mode, node.status.st_mtime_ns)
        elif node.is_link:
            self.put_link(parts, os.readlink(node.path), owner, node.status.st_mtime_ns)
        elif node.is_file:
            self.put_file(parts, node.path, owner, mode, node.status.st_mtime_ns)
        elif stat.S_ISFIFO(node.status.st_mode):
            os.mkfifo(self._place(parts))
            self._set_attributes(parts, owner, mode, node.status.st_mtime_ns)

    def _place(self, parts: Parts) -> str:
        """Return the path for a new entry whose folder exists; a file of the same name is replaced."""
        if not parts:
            raise TreeError("/ cannot be replaced by a file")
        existing = self.tree.find(parts)
        if existing is not None and existing.is_folder:
            raise TreeError(f"{existing.name} is a folder in the image and cannot be replaced by a file")
        self.ensure_folder(parts[:-1])
        self._mirror(parts[:-1])
        path = self._path(parts)
        if existing is not None and existing.path == path:
            os.unlink(path)
        self.is_empty = False
        return path

    def _mirror(self, parts: Parts) -> None:
        """Create the folder in the layer with the attributes that it has in the tree."""
        if parts in self._present:
            return
        self._mirror(parts[:-1])
        node = self.tree.find(parts)
        assert node is not None
        self._make_folder(parts, node.owner, node.mode, node.status.st_mtime_ns)

    def _make_folder(self, parts: Parts, owner: Owner, mode: int, mtime_ns: int) -> None:
        self.budget.add(0)
        os.mkdir(self._path(parts), 0o700)
        self._present.add(parts)
        self.is_empty = False
        self._set_attributes(parts, owner, mode, mtime_ns)

    def _path(self, parts: Parts) -> str:
        if any(part in ("", ".", "..") or "/" in part or "\0" in part for part in parts):
            raise TreeError(f"{'/'.join(parts)[:200]!r} is not a usable path")
        return "/".join((self._folder, *parts))

    def _set_attributes(self, parts: Parts, owner: Owner, mode: int | None, mtime_ns: int) -> None:
        path = self._path(parts)
        if self._is_root:
            os.chown(path, *owner, follow_symlinks=False)
        elif owner != (0, 0):
            self.owners["/".join(parts)] = owner
        if mode is not None:
            is_folder = parts in self._present
            own = 0 if self._is_root else 0o700 if is_folder else 0o400
            os.chmod(path, (mode if is_folder else mode & 0o1777) | own)
        os.utime(path, ns=(mtime_ns, mtime_ns), follow_symlinks=False)
