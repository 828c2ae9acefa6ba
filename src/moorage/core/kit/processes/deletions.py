"""Deletes large folders after the work that left them, in processes of their own.

A folder with the dependencies of a Node.js project has 50,000 files. Deleting them in a thread takes seconds of the
interpreter lock, and delays a deployment whose build left them.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moorage.core.kit import folders


def delete(folder: Path) -> None:
    """Delete a folder tree, with any file modes. Safe to repeat."""
    argv = ["nice", "-n", "10", "rm", "-rf", "--one-file-system", "--", str(folder)]
    subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    folders.remove(folder)  # what `rm` has no permission for


class Deletions:
    """Deletions in the background. One that ends with the process is repeated by the next one's clean-up."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, folder: Path) -> None:
        self.run(lambda: delete(folder))

    def run(self, work: Callable[[], Any]) -> None:
        """Run work that deletes folders, in a thread."""
        task = asyncio.create_task(asyncio.to_thread(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait for the deletions that have begun."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
