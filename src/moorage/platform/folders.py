"""Create and check the data folder, without the slow import of the database layer."""

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
    "building",
    "unpublished",
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
# The gateway, which may run as another user, reads these; all others are private.
READABLE = (
    "sites",
    "disabled",
    "building",
    "unpublished",
    "releases",
    "apps",
)
# Existing files that the start opens.
_OPENED = ("instance", "store/lock", "store/moorage.db", "keys/master_key", "keys/session_secret")
_ALL = os.R_OK | os.W_OK | os.X_OK


class UnusableFolder(CannotStart):
    """This user cannot use the data folder; the message says how to fix that."""


def demo_token_path(settings: Settings) -> Path:
    """Return the file with an API token of the demo organization, in development."""
    return settings.data / "demo-token"


def make(settings: Settings) -> None:
    """Create missing parts of the data folder; raises UnusableFolder."""
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
    """Raise DataFolderInUse if a platform runs on this folder, before any change."""
    if settings.uses_postgres:
        return
    FolderLock(settings.folder("store")).release()


def check_owner(data: Path, user: int) -> None:
    """Refuse root on the folder of another user, which could not open root's files.

    A non-root user may have access through a group, as with container volumes, so ownership is not required of it.
    """
    try:
        owner = data.stat().st_uid
    except OSError:
        return  # The next step creates the folder, or reports why it cannot.
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
    problem = f"cannot use {path} in the data folder {data}: {error.strerror}"
    if error.errno == errno.EROFS:
        return f"{problem}. Mount it for writing, or choose another folder with --data"
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"{problem}. It has to be readable and writable for {_user(os.geteuid())}: start as the user that owns it"
            f"{_owner_text(Path(path))}, or choose another folder with --data"
        )
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return f"{problem}. A file is where a folder should be: move it away, or choose another folder with --data"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{problem}. Free some space, or choose another folder with --data"
    return f"{problem}. Choose another folder with --data, or see `moorage doctor`"


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
