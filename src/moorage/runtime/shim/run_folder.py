"""Run folder of a shim. Later, another shim may create one of the same name."""

from __future__ import annotations

import os
from pathlib import Path

from moorage.core.kit import folders


class RunFolder:
    def __init__(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True)
        self.path = path
        self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY)  # Kept open, so that no new folder gets its inode number.

    @property
    def is_ours(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except OSError:
            return False

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically; raises OSError if the folder was removed or replaced."""
        new = f"{name}.new"
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=self._fd)
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
        os.rename(new, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def remove(self) -> None:
        if self.is_ours:
            folders.remove(self.path)
