"""Files of an image that are on this machine already, put together by hard links.

A redeployed image has the layers of its base image, which is unpacked, and layers of builds, which are folders of this
machine (`building/files/layer_folders`). Their files never change, so the new image can share them: neither their
content nor their disk space is needed twice.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.images.building.files.layer_folders import LayerFolders
from moorage.runtime.images.building.files.tree import is_opaque, is_whiteout
from moorage.runtime.images.layers import Unpacker

_CANNOT_LINK = (errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP)


Known = Sequence[tuple[Sequence[str], Path]]  # layers and root of unpacked images


def link_layers(unpacker: Unpacker, wanted: Sequence[str], known: Known, layers: LayerFolders | None) -> int:
    """Put the first of the wanted layers, as many as this machine has, into the empty root of an unpacker.

    Return their number, 0 if that fails. Raises TooLarge.
    """
    count, base = _longest_prefix(wanted, known)
    root = _LinkedRoot(unpacker)
    try:
        if base is not None:
            root.put(base)
        with contextlib.ExitStack() as stack:
            while layers is not None and count < len(wanted):
                folder = layers.hold(wanted[count].removeprefix("sha256:"), stack)
                if folder is None:
                    break
                root.put(folder)
                count += 1
    except OSError:  # The other image was removed meanwhile, or a path is too long.
        _empty(str(unpacker.root))
        unpacker.entries = unpacker.written_bytes = 0
        return 0
    return count


def _longest_prefix(wanted: Sequence[str], known: Known) -> tuple[int, Path | None]:
    """Return the unpacked image that has the most layers, all of them the first wanted ones; and their number."""
    best: tuple[int, Path | None] = (0, None)
    for own, root in known:
        if len(own) > best[0] and list(own) == list(wanted[: len(own)]):
            best = (len(own), root)
    return best


class _LinkedRoot:
    def __init__(self, unpacker: Unpacker) -> None:
        self._unpacker = unpacker

    def put(self, folder: Path) -> None:
        """Put the files of an unpacked image or of a layer on top, with whiteouts as overlay mounts have them."""
        self._merge(str(folder), str(self._unpacker.root))

    def _merge(self, source: str, target: str) -> None:
        """Put the entries of a folder into a folder that exists, and give it the source's attributes."""
        if is_opaque(source):
            _empty(target)
        with os.scandir(source) as listed:
            entries = list(listed)
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            self._unpacker.count_shared(max(status.st_blocks * folders.BLOCK_BYTES, folders.MIN_ENTRY_BYTES))
            path = f"{target}/{entry.name}"
            if stat.S_ISDIR(status.st_mode):
                if not _is_folder(path):
                    _remove(path)
                    os.mkdir(path, 0o700)
                self._merge(entry.path, path)
                continue
            _remove(path)
            if not is_whiteout(status):
                _link(entry.path, path, status)
        _copy_attributes(os.lstat(source), target)


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        folders.remove(Path(path))


def _empty(folder: str) -> None:
    for name in os.listdir(folder):
        _remove(f"{folder}/{name}")


def _link(source: str, target: str, status: os.stat_result) -> None:
    """Link a file; copy it where it has too many links already, or its file system has none for its kind."""
    try:
        os.link(source, target, follow_symlinks=False)
        return
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISREG(status.st_mode):
        shutil.copyfile(source, target, follow_symlinks=False)
    else:
        return
    _copy_attributes(status, target)


def _copy_attributes(status: os.stat_result, target: str) -> None:
    if os.geteuid() == 0:
        os.chown(target, status.st_uid, status.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        os.chmod(target, stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)
