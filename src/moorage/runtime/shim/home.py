"""The folder of a shim. It stays ours only as long as nobody removes it: then another shim may get one by its name."""

from __future__ import annotations

import os
from pathlib import Path

from moorage.core.kit import folders


class Home:
    def __init__(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True)
        self.path = path
        self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY)  # Held, so that no other folder gets its number.

    @property
    def is_ours(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except OSError:
            return False

    def write(self, name: str, data: bytes) -> None:
        """Put a file there whole or not at all; raises OSError where the folder has gone, whatever is in its place."""
        new = f"{name}.new"
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=self._fd)
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
        os.rename(new, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def remove(self) -> None:
        if self.is_ours:
            folders.remove(self.path)
