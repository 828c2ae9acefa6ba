"""Writable layer of a sandbox over its read-only application folder.

Changed files are kept in the tmpfs of /tmp, which both share: the kernel bounds its size and frees it with the sandbox.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.inside import TMP

STAGING = "/run"  # an empty folder of the sandbox's root, on which nothing is mounted
# Without overlay mounts a small folder is copied, which uses the space of /tmp.
MAX_COPIED_BYTES, MAX_COPIED_FILES = 64 * 2**20, 5_000
_FLAGS = sys_.MS_NOSUID | sys_.MS_NODEV
_UPPER, _WORK, _LOWER, _TMP = (f"{STAGING}/{name}" for name in ("upper", "work", "lower", "tmp"))


def place(folder: str, *, uid: int, tmp_mb: int) -> int | None:
    """Mount /tmp, and make `folder` writable for `uid`, or for this user if it is 0.

    Returns a descriptor of the folder of changes; None if the folder stays read-only.
    """
    sys_.mount("tmpfs", STAGING, "tmpfs", _FLAGS, f"mode=755,size={tmp_mb}m")
    for path in (_UPPER, _WORK, _LOWER, _TMP):
        os.mkdir(path, 0o755)
    os.chmod(_TMP, 0o1777)  # noqa: S103 - the sandbox's own /tmp
    if uid:
        os.chown(_UPPER, uid, uid)
    try:
        is_writable = _overlay(folder, uid) or _copy(folder, uid)
        changes = os.open(_UPPER, os.O_RDONLY | os.O_DIRECTORY) if is_writable else None
        sys_.mount(_TMP, TMP, None, sys_.MS_BIND, None)
    finally:
        sys_.umount2(STAGING, sys_.MNT_DETACH)
    return changes


def _overlay(folder: str, uid: int) -> bool:
    layers = f"lowerdir={_LOWER},upperdir={_UPPER},workdir={_WORK}"
    with contextlib.suppress(OSError):
        _mount_lower(folder, uid)
        # A user namespace may not use trusted extended attributes; it has others since Linux 5.11. Without any, a
        # removed folder cannot be made again.
        for options in (layers,) if uid else (f"{layers},userxattr", layers):
            with contextlib.suppress(OSError):
                sys_.mount("overlay", folder, "overlay", _FLAGS, options)
                return True
    return False


def _mount_lower(folder: str, uid: int) -> None:
    """Mount the folder at a path without special characters, with root's files owned by `uid`.

    Where the kernel or file system cannot map owners, `uid` can only add files at the top of the folder.
    """
    clone = sys_.open_tree(sys_.AT_FDCWD, folder, sys_.OPEN_TREE_CLONE | sys_.OPEN_TREE_CLOEXEC)
    try:
        if uid:
            with contextlib.suppress(OSError), _user_namespace(uid) as users:
                sys_.mount_setattr(clone, "", sys_.AT_EMPTY_PATH, sys_.MOUNT_ATTR_IDMAP, 0, 0, users)
        sys_.move_mount(clone, "", sys_.AT_FDCWD, _LOWER, sys_.MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(clone)


@contextlib.contextmanager
def _user_namespace(uid: int) -> Iterator[int]:
    """Yield a user namespace that maps root to `uid`; a child holds it until its maps are set."""
    child = sys_.fork_into(sys_.CLONE_NEWUSER)
    if child == 0:
        signal.pause()  # All signals are blocked but SIGKILL.
        os._exit(0)
    try:
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{name}").write_text(f"0 {uid} 1")
        users = os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield users
        finally:
            os.close(users)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _copy(folder: str, uid: int) -> bool:
    """Copy a small folder, and mount the copy in its place."""
    used = 0
    for number, entry in enumerate(folders.walk(folder)):
        used += entry.stat(follow_symlinks=False).st_size
        if used > MAX_COPIED_BYTES or number > MAX_COPIED_FILES:
            return False
    copy = Path(STAGING, "copy")
    try:
        shutil.copytree(folder, copy, symlinks=True)
        if uid:
            folders.change_owner(copy, uid)
        sys_.mount(str(copy), folder, None, sys_.MS_BIND, None)
    except (OSError, shutil.Error):
        shutil.rmtree(copy, ignore_errors=True)
        return False
    return True
