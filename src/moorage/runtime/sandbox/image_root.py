"""The file system of a sandbox that runs an image: the image's files instead of the host's, and nothing else.

An image lies there once for all of its runs, so nothing can be put into it, not even the folders to mount on. So the
tree is a small one of our own, whose entries are mounts of the image's top-level entries, read-only; what it has to
have besides, and the image may lack, is made beside them. `/etc` is taken apart in the same way, for some of its files
are the sandbox's own. An overlay would do it in one go, but not every kernel gives one to an ordinary user.
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
MOST_ENTRIES = 1_000  # of the top-level folder, and of /etc: each is a mount
MOST_ACCOUNTS = 64 * 2**10  # bytes of an image's list of users that is made longer
ETC = "etc"
_OURS = frozenset(("proc", "dev", "tmp"))
_ACCOUNTS = {"passwd": "app:x:{0}:{0}:app:/tmp:/bin/sh\n", "group": "app:x:{0}:\n"}


def build(tree: Path, image: Path, *, uid: int, files: Mapping[str, str]) -> bool:
    """Mount an image's tree on a folder, with small `files` of our own below /etc; tell whether /work is ours.

    An image that has something in /work itself keeps it. It needs the right to mount, as `root.build` does.
    """
    root.begin(tree)
    has_work = _has_work(image)
    for entry in _entries(image):
        if entry.name not in _OURS and entry.name != ETC and (has_work or entry.name != WORK[1:]):
            _take(entry, tree / entry.name)
    _furnish_etc(tree / ETC, image / ETC, {**files, **_accounts(image / ETC, uid)})
    root.finish(tree, folders=("proc", "tmp") if has_work else ("proc", "tmp", WORK[1:]))
    return not has_work


def place_writable(size_mb: int, *, with_work: bool) -> None:
    """Give the sandbox its private folders: /tmp, and /work, which have one bound together."""
    flags = sys_.MS_NOSUID | sys_.MS_NODEV
    sys_.mount("tmpfs", inside.TMP, "tmpfs", flags, f"mode=755,size={size_mb}m")
    clones = {}
    for path in (inside.TMP, WORK) if with_work else (inside.TMP,):
        folder = inside.TMP + path
        os.mkdir(folder)
        os.chmod(folder, 0o1777)  # noqa: S103 - as every /tmp
        clones[path] = inside.clone_mount(folder)
    sys_.umount2(inside.TMP, sys_.MNT_DETACH)
    inside.place_mounts(clones, 0)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    if len(entries) > MOST_ENTRIES:
        raise ValueError(f"the image has more than {MOST_ENTRIES:,} entries in one of the folders / and /etc")
    return entries


def _take(entry: os.DirEntry[str], target: Path) -> None:
    if entry.is_symlink():
        target.symlink_to(os.readlink(entry.path))
    elif entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
        root.bind(entry.path, target)


def _has_work(image: Path) -> bool:
    work = image / WORK[1:]
    return work.is_symlink() or (work.is_dir() and any(work.iterdir()))


def _furnish_etc(target: Path, source: Path, files: Mapping[str, str]) -> None:
    target.mkdir()
    if source.is_dir() and not source.is_symlink():
        for entry in _entries(source):
            if entry.name not in files:
                _take(entry, target / entry.name)
    for name, text in files.items():
        (target / name).write_text(text)
        (target / name).chmod(0o644)


def _accounts(etc: Path, uid: int) -> dict[str, str]:
    """Return the image's lists of users and groups with one more: many programs need their user to have a name."""
    return {name: _read(etc / name) + added.format(uid) for name, added in _ACCOUNTS.items()}


def _read(path: Path) -> str:
    """Read a file of the image, and nothing that it might lead to; too large a one is none."""
    with contextlib.suppress(OSError):
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(opened, "rb") as file:
            found = os.fstat(opened)
            if stat.S_ISREG(found.st_mode) and found.st_size <= MOST_ACCOUNTS:
                text = file.read(MOST_ACCOUNTS).decode("utf-8", "replace")
                return text if not text or text.endswith("\n") else text + "\n"
    return "root:x:0:0:root:/:/bin/sh\n" if path.name == "passwd" else "root:x:0:\n"
