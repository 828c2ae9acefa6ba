"""Root file system of a sandbox that runs an image, without files of the host.

All runs share one unpacked image, so nothing can be created in it, not even mount points. The root is therefore a small
tmpfs with read-only bind mounts of the image's top-level entries, and with the folders that a sandbox needs and the
image may lack. `/etc` is assembled in the same way, because the sandbox provides some of its files. An overlay mount
would be simpler, but not every kernel allows it to an unprivileged user.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from moorage.runtime.sandbox import inside, root
from moorage.runtime.sandbox import syscalls as sys_

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
WORK = "/work"
MAX_ENTRIES = 1_000  # of the top-level folder, and of /etc: each is a mount
MAX_ACCOUNT_FILE_BYTES = 64 * 2**10  # A larger passwd or group file of an image is replaced.
ETC = "etc"
_PROVIDED = frozenset(("proc", "dev", "tmp"))
_ACCOUNTS = {"passwd": "app:x:{0}:{0}:app:/tmp:/bin/sh\n", "group": "app:x:{0}:\n"}


def build(tree: Path, image: Path, *, uid: int, files: Mapping[str, str]) -> bool:
    """Mount an image's root with `files` below /etc; True if /work must be provided.

    An image with content in /work keeps it. The caller needs the right to mount, as for `root.build`.
    """
    root.begin(tree)
    has_work = _has_work(image)
    for entry in _entries(image):
        if entry.name not in _PROVIDED and entry.name != ETC and (has_work or entry.name != WORK[1:]):
            _bind_entry(entry, tree / entry.name)
    _build_etc(tree / ETC, image / ETC, {**files, **_account_files(image / ETC, uid)})
    root.finish(tree, folders=("proc", "tmp") if has_work else ("proc", "tmp", WORK[1:]))
    return not has_work


def place_writable(size_mb: int, *, with_work: bool) -> None:
    """Mount the writable folders /tmp and perhaps /work, which share a size limit."""
    flags = sys_.MS_NOSUID | sys_.MS_NODEV
    sys_.mount("tmpfs", inside.TMP, "tmpfs", flags, f"mode=755,size={size_mb}m")
    clones = {}
    for path in (inside.TMP, WORK) if with_work else (inside.TMP,):
        folder = inside.TMP + path
        os.mkdir(folder)
        os.chmod(folder, 0o1777)  # noqa: S103 - as every /tmp
        clones[path] = inside.clone_mount(folder)
    sys_.umount2(inside.TMP, sys_.MNT_DETACH)
    inside.place_mounts(clones)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as scan:
        entries = sorted(scan, key=lambda entry: entry.name)
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"the image has more than {MAX_ENTRIES:,} entries in one of the folders / and /etc")
    return entries


def _bind_entry(entry: os.DirEntry[str], target: Path) -> None:
    if entry.is_symlink():
        target.symlink_to(os.readlink(entry.path))
    elif entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
        root.bind(entry.path, target)


def _has_work(image: Path) -> bool:
    work = image / WORK[1:]
    return work.is_symlink() or (work.is_dir() and any(work.iterdir()))


def _build_etc(target: Path, source: Path, files: Mapping[str, str]) -> None:
    target.mkdir()
    if source.is_dir() and not source.is_symlink():
        for entry in _entries(source):
            if entry.name not in files:
                _bind_entry(entry, target / entry.name)
    for name, text in files.items():
        (target / name).write_text(text)
        (target / name).chmod(0o644)


def _account_files(etc: Path, uid: int) -> dict[str, str]:
    """Return the image's account files with the user, whose name many programs need."""
    return {name: _read(etc / name) + line.format(uid) for name, line in _ACCOUNTS.items()}


def _read(path: Path) -> str:
    """Read a passwd or group file; a minimal one if missing, a link or too large."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_ACCOUNT_FILE_BYTES:
                text = file.read(MAX_ACCOUNT_FILE_BYTES).decode("utf-8", "replace")
                return text if not text or text.endswith("\n") else text + "\n"
    return "root:x:0:0:root:/:/bin/sh\n" if path.name == "passwd" else "root:x:0:\n"
