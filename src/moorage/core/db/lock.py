"""The lock that gives one process exclusive use of a data folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from moorage.errors import CannotStart


class DataFolderInUse(CannotStart):
    def __init__(self, folder: Path, pid: str) -> None:
        super().__init__(
            f"the data folder {folder} is in use by another Moorage (process {pid or 'unknown'}); stop that one, or "
            "choose another folder with --data"
        )


class FolderLock:
    """Holds the lock until `release` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(self._file, 32).decode(errors="replace").strip()
            os.close(self._file)
            raise DataFolderInUse(folder, pid) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._file)
