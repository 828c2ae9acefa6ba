"""The data folder and what is in it, for those who start the platform: without the store, which is slow to load."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path

from moorage.core.db.lock import FolderLock
from moorage.errors import CannotStart
from moorage.settings import Settings

FOLDERS = (
    "store",
    "artifacts",
    "git",
    "sites",
    "disabled",
    "releases",
    "apps",
    "app-releases",
    "builds",
    "code",
    "spool",
    "run",
    "logs",
    "databases",
    "engines",
    "volumes",
    "trash",
    "keys",
    "uploads",
)
READABLE = (
    "sites",
    "disabled",
    "releases",
    "apps",
)  # by the gateway, which may run as another user; everything else is ours alone
# Files that the start opens, where they exist already.
_OPENED = ("instance", "store/lock", "store/moorage.db", "keys/master_key", "keys/session_secret")
_ALL = os.R_OK | os.W_OK | os.X_OK


class UnusableFolder(CannotStart):
    """The data folder cannot be used by this user; the message says how it can."""


def make(settings: Settings) -> None:
    """Make what is missing of the data folder; raises UnusableFolder where this user cannot or must not use it."""
    data = settings.data
    check_owner(data, os.geteuid())
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in FOLDERS:
            settings.folder(name).mkdir(exist_ok=True, mode=0o755 if name in READABLE else 0o700)
        for path in (data, *(settings.folder(name) for name in FOLDERS)):
            _check_access(path, _ALL)
        for path in (data / name for name in _OPENED):
            if path.exists():
                _check_access(path, os.R_OK | os.W_OK)
    except OSError as error:
        raise UnusableFolder(_explained(data, error)) from error


def check_not_running(settings: Settings) -> None:
    """Refuse where a platform runs on this folder, before anything of its is touched."""
    if settings.uses_postgres:
        return
    FolderLock(settings.folder("store")).release()


def check_owner(data: Path, user: int) -> None:
    """Refuse root on a folder of another user: files that root makes there would lock that user out.

    An ordinary user may be given a folder by its group, as with volumes in containers, so only access counts for it.
    """
    try:
        owner = data.stat().st_uid
    except OSError:
        return  # It is made, or cannot be used: the next step says which.
    if user == 0 and owner != 0:
        raise UnusableFolder(
            f"the data folder {data} belongs to {_user(owner)}, and this is root: files that root makes there would "
            f"keep that user from starting. Run the command as {_user(owner)}; to let root own the platform from now "
            f"on, change the owner of the folder itself: chown root {data}"
        )


def _check_access(path: Path, mode: int) -> None:
    if not os.access(path, mode, effective_ids=True):
        code = errno.EROFS if os.statvfs(path).f_flag & os.ST_RDONLY else errno.EACCES
        raise OSError(code, os.strerror(code), str(path))


def _explained(data: Path, error: OSError) -> str:
    path = error.filename or data
    what = f"cannot use {path} in the data folder {data}: {error.strerror}"
    if error.errno == errno.EROFS:
        return f"{what}. Mount it for writing, or choose another folder with --data"
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"{what}. It has to be readable and writable for {_user(os.geteuid())}: start as the user that owns it"
            f"{_owner_text(Path(path))}, or choose another folder with --data"
        )
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return f"{what}. A file is where a folder should be: move it away, or choose another folder with --data"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{what}. Free some space, or choose another folder with --data"
    return f"{what}. Choose another folder with --data, or see `moorage doctor`"


def _owner_text(path: Path) -> str:
    try:
        return f" ({_user(path.stat().st_uid)})"
    except OSError:
        return ""


def _user(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return f"the user {uid}"
