"""Merged view of layer folders, as an overlay mount of them would show it.

The folders are untrusted: links are resolved here, component by component, and never lead out of the merged tree. They
do not change while they are read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from moorage.core.kit.records import dataclass

MAX_LINKS = 40
OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")


class TreeError(ValueError):
    """A path of an image cannot be used; the message is for the user."""


def owner_of(status: os.stat_result) -> tuple[int, int]:
    """Return the owner in the image: without root, all files belong to this user and mean root."""
    return (status.st_uid, status.st_gid) if os.geteuid() == 0 else (0, 0)


@dataclass(frozen=True, slots=True)
class Node:
    """One entry of the merged tree."""

    parts: tuple[str, ...]
    paths: tuple[str, ...]  # on the disk, topmost first; several only for folders
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    @property
    def mode(self) -> int:
        return stat.S_IMODE(self.status.st_mode)

    @property
    def owner(self) -> tuple[int, int]:
        return owner_of(self.status)

    @property
    def path(self) -> str:
        return self.paths[0]

    @property
    def name(self) -> str:
        return "/" + "/".join(self.parts)


class Tree:
    """Layer folders on top of each other, lowest first.

    In a strict tree, a link or `..` that leaves the root is an error; otherwise it stays at the root.
    """

    def __init__(self, folders: Sequence[Path], *, is_strict: bool = False) -> None:
        self._folders = tuple(str(folder) for folder in reversed(folders))
        self._is_strict = is_strict

    @property
    def root(self) -> Node | None:
        return Node((), self._folders, os.lstat(self._folders[0])) if self._folders else None

    def child(self, parent: Node, name: str) -> Node | None:
        """Return an entry of a folder; None where it is missing or hidden by a whiteout."""
        paths: list[str] = []
        first: os.stat_result | None = None
        for folder in parent.paths:
            path = f"{folder}/{name}"
            try:
                status = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            if is_whiteout(status) or (first is not None and not stat.S_ISDIR(status.st_mode)):
                break
            paths.append(path)
            first = first or status
            if not stat.S_ISDIR(status.st_mode) or is_opaque(path):
                break
        return Node((*parent.parts, name), tuple(paths), first) if first is not None else None

    def children(self, parent: Node) -> Iterator[Node]:
        names: set[str] = set()
        for folder in parent.paths:
            names.update(os.listdir(folder))
        for name in sorted(names):
            node = self.child(parent, name)
            if node is not None:
                yield node

    def resolve(self, path: str, cwd: str = "/", *, follows_last: bool = True) -> tuple[str, ...]:
        """Return the path without links; the last components may be missing."""
        pending = [*reversed(f"{cwd}/{path}".split("/") if not path.startswith("/") else path.split("/"))]
        parts: list[str] = []
        nodes: list[Node | None] = [self.root]
        links = 0
        while pending:
            part = pending.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if not parts and self._is_strict:
                    raise TreeError(f"{path!r} leads out of the build context")
                if parts:
                    parts.pop()
                    nodes.pop()
                continue
            here = nodes[-1]
            node = self.child(here, part) if here is not None and here.is_folder else None
            if node is not None and node.is_link and (follows_last or any(each not in ("", ".") for each in pending)):
                links += 1
                if links > MAX_LINKS:
                    raise TreeError(f"{path!r} has too many links")
                target = os.readlink(node.path)
                if target.startswith("/"):
                    if self._is_strict:
                        raise TreeError(f"{path!r} is a link to {target[:200]!r}, which leads out of the build context")
                    parts, nodes = [], [self.root]
                pending += reversed(target.split("/"))
                continue
            parts.append(part)
            nodes.append(node)
        return tuple(parts)

    def find(self, parts: Sequence[str]) -> Node | None:
        """Return an entry by its path without links."""
        node = self.root
        for part in parts:
            if node is None or not node.is_folder:
                return None
            node = self.child(node, part)
        return node

    def get(self, path: str, cwd: str = "/", *, follows_last: bool = True) -> Node | None:
        return self.find(self.resolve(path, cwd, follows_last=follows_last))

    def read_text(self, path: str, most_bytes: int = 4 * 2**20) -> str:
        """Return the text of a small regular file, "" where there is none."""
        node = self.get(path)
        if node is None or not node.is_file or node.status.st_size > most_bytes:
            return ""
        return Path(node.path).read_bytes().decode("utf-8", "replace")


def is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(path: str) -> bool:
    """Return whether a folder of a layer hides the folders of lower layers."""
    for name in OPAQUE:
        with contextlib.suppress(OSError):
            if os.getxattr(path, name, follow_symlinks=False) == b"y":
                return True
    return False


def mark_opaque(path: str) -> None:
    os.setxattr(path, OPAQUE[0] if os.geteuid() == 0 else OPAQUE[1], b"y", follow_symlinks=False)
