"""Layers as archives: a folder of changes becomes a tar file, and back.

A folder of changes has whiteouts as overlay mounts have them; the archive has those of the OCI format.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, cast

from moorage.runtime.images.building.files.tree import TreeError, is_opaque, is_whiteout, mark_opaque, owner_of
from moorage.runtime.images.building.files.writing import Budget

MAX_DEPTH = 400
MAX_LINK_CHARS = 64 * 2**20  # of the names of files with hard links
WHITEOUT, OPAQUE_ENTRY = ".wh.", ".wh..wh..opq"
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID
_BUFFER = 2**20

Owners = Mapping[str, tuple[int, int]]  # path in the layer -> owner that the disk does not have


def pack(folder: Path, target: Path, *, owners: Owners, budget: Budget) -> int:
    """Write the changes of a folder to a tar file; return the number of entries. Raises TreeError.

    The archive has the holes of sparse files as zeros, so a step that wrote little can make a large one.

    Files that the owner cannot read are made readable on the disk, and keep their mode in the archive. Setuid bits are
    removed from the disk for the same reason: only the archive needs them.
    """
    with target.open("xb") as file, tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        packer = _Packer(archive, str(folder), owners, budget)
        packer.add_folder("", str(folder))
    return packer.entries


class _Packer:
    def __init__(self, archive: tarfile.TarFile, root: str, owners: Owners, budget: Budget) -> None:
        self._archive = archive
        self._root = root
        self._owners = owners
        self._budget = budget
        self._inodes: dict[int, str] = {}
        self._link_chars = 0
        self.entries = 0

    def add_folder(self, above: str, path: str) -> None:
        """Add the entries of a folder, and those below it."""
        if above.count("/") > MAX_DEPTH:
            raise TreeError(f"the step made folders that are nested more than {MAX_DEPTH} levels deep")
        for each in self._names(path):
            name, inner = f"{above}{each}", f"{path}/{each}"
            if each.startswith(WHITEOUT):  # Its archive could equal one with a whiteout, and so share its digest.
                raise TreeError(
                    f"an image cannot contain {f'/{name}'[:200]!r}: in layers, names that begin with {WHITEOUT!r} mark"
                    " deleted files. Rename the file, or delete it in this step"
                )
            status = os.lstat(inner)
            is_file = stat.S_ISREG(status.st_mode)
            self.entries += 1
            self._budget.add(status.st_size if is_file and status.st_ino not in self._inodes else 0)
            if is_whiteout(status):
                self._add_empty(f"{above}{WHITEOUT}{each}")
            elif stat.S_ISDIR(status.st_mode):
                self._add_one(name, inner, status)
                if is_opaque(inner):
                    self._add_empty(f"{name}/{OPAQUE_ENTRY}")
                self.add_folder(f"{name}/", inner)
            elif is_file or stat.S_ISLNK(status.st_mode) or stat.S_ISFIFO(status.st_mode):
                self._add_one(name, inner, status)

    def _names(self, path: str) -> list[str]:
        names: list[str] = []
        with os.scandir(path) as scan:
            for entry in scan:
                names.append(entry.name)
                self._budget.check_count(self.entries + len(names))  # before all names are in memory
        return sorted(names)

    def _add_empty(self, name: str) -> None:
        header = tarfile.TarInfo(name)
        header.mode = 0o600
        self._add(header)

    def _add_one(self, name: str, path: str, status: os.stat_result) -> None:
        header = tarfile.TarInfo(name)
        header.mode = stat.S_IMODE(status.st_mode)
        header.mtime = max(int(status.st_mtime), 0)
        header.uid, header.gid = self._owners.get(name) or owner_of(status)
        self._make_plain(path, status)
        if stat.S_ISDIR(status.st_mode):
            header.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(status.st_mode):
            header.type, header.linkname, header.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
        elif stat.S_ISFIFO(status.st_mode):
            header.type = tarfile.FIFOTYPE
        elif (first := self._first_of(status, name)) != name:
            header.type, header.linkname = tarfile.LNKTYPE, first
        else:
            header.size = status.st_size
            with open(path, "rb", buffering=0) as content:
                self._add(header, cast("IO[bytes]", content))
            return
        self._add(header)

    def _add(self, header: tarfile.TarInfo, content: IO[bytes] | None = None) -> None:
        self._archive.addfile(header, content)
        self._archive.members.clear()  # type: ignore[attr-defined]  # Else `tarfile` keeps every header.

    def _first_of(self, status: os.stat_result, name: str) -> str:
        """Return the first name of a file with hard links; beyond a limit of memory the links become files."""
        if status.st_nlink > 1 and status.st_ino not in self._inodes and self._link_chars < MAX_LINK_CHARS:
            self._inodes[status.st_ino] = name
            self._link_chars += len(name)
        return self._inodes.get(status.st_ino, name)

    def _make_plain(self, path: str, status: os.stat_result) -> None:
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            return
        readable = 0o700 if stat.S_ISDIR(status.st_mode) else 0o400
        wanted = mode & ~_SPECIAL_BITS if stat.S_ISREG(status.st_mode) else mode
        if os.geteuid() != 0:
            wanted |= readable
        if wanted != mode:
            os.chmod(path, wanted)


def unpack(archive: Path, target: Path) -> None:
    """Write a layer that `pack` made to a new folder, with whiteouts for overlay mounts."""
    target.mkdir(mode=0o755)
    late: list[tuple[str, tarfile.TarInfo]] = []
    with archive.open("rb") as file, tarfile.open(fileobj=file, mode="r|", bufsize=_BUFFER) as opened:
        while (member := opened.next()) is not None:
            opened.members.clear()  # type: ignore[attr-defined]  # Else `tarfile` keeps every header.
            path = f"{target}/{_checked(member.name)}"
            above, name = os.path.split(path)
            if name == OPAQUE_ENTRY:
                mark_opaque(above)
            elif name.startswith(WHITEOUT):
                os.mknod(f"{above}/{name.removeprefix(WHITEOUT)}", stat.S_IFCHR, 0)
            else:
                _write(opened, member, path, str(target))
                if member.isdir():
                    late.append((path, member))
                elif not member.islnk():
                    _set_attributes(path, member)
    for path, member in reversed(late):
        _set_attributes(path, member)


def _checked(name: str) -> str:
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise ValueError(f"the layer has a file with the forbidden name {name[:200]!r}")
    return name.rstrip("/")


def _write(opened: tarfile.TarFile, member: tarfile.TarInfo, path: str, root: str) -> None:
    if member.isdir():
        os.mkdir(path, 0o700)
    elif member.issym():
        os.symlink(member.linkname, path)
    elif member.islnk():
        os.link(f"{root}/{_checked(member.linkname)}", path, follow_symlinks=False)
    elif member.isfifo():
        os.mkfifo(path)
    elif member.isreg():
        content = cast("IO[bytes]", opened.extractfile(member))
        with open(path, "xb", buffering=0) as file:
            while block := content.read(_BUFFER):
                file.write(block)


def _set_attributes(path: str, member: tarfile.TarInfo) -> None:
    if os.geteuid() == 0:
        os.chown(path, member.uid, member.gid, follow_symlinks=False)
    if not member.issym():
        mode = member.mode & 0o7777 if member.isdir() else member.mode & ~_SPECIAL_BITS & 0o7777
        os.chmod(path, mode if os.geteuid() == 0 else mode | (0o700 if member.isdir() else 0o400))
    with contextlib.suppress(OSError):
        os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)
