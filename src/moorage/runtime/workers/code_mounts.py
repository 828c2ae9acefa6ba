"""How code gets into a cell that already runs and has no rights left: it appears at /code, read-only.

Every cell's /code is a slave of a folder of its own here. What is mounted on that folder shows up inside, by mount
propagation, and nothing the cell does can change or remove it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from moorage.runtime.sandbox import syscalls as sys_

ATTRIBUTES = sys_.MOUNT_ATTR_RDONLY | sys_.MOUNT_ATTR_NOSUID | sys_.MOUNT_ATTR_NODEV
HERE = -100


class CodeMounts:
    """The slots of all cells; they live in the invoker's own mount namespace and go with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        sys_.mount("tmpfs", str(folder), "tmpfs", sys_.MS_NOSUID | sys_.MS_NODEV, "mode=711,size=4m")
        sys_.mount(None, str(folder), None, sys_.MS_SHARED, None)

    def open(self, cell: int) -> int:
        """Return a descriptor of the cell's slot that can be mounted once, in the cell's own namespace."""
        slot = self._slot(cell)
        os.mkdir(slot)
        # Mounted onto itself, the slot is a peer group of its own: other cells' code does not pass through it.
        sys_.mount(slot, slot, None, sys_.MS_BIND, None)
        sys_.mount(None, slot, None, sys_.MS_PRIVATE, None)
        sys_.mount(None, slot, None, sys_.MS_SHARED, None)
        descriptor = sys_.open_tree(HERE, slot, sys_.OPEN_TREE_CLONE | sys_.OPEN_TREE_CLOEXEC)
        sys_.mount_setattr(descriptor, "", sys_.AT_EMPTY_PATH, ATTRIBUTES, 0, sys_.MS_SLAVE)
        return descriptor

    def put(self, cell: int, code: Path) -> None:
        """Let the code appear in the cell."""
        tree = sys_.open_tree(HERE, str(code), sys_.OPEN_TREE_CLONE | sys_.OPEN_TREE_CLOEXEC)
        try:
            sys_.mount_setattr(tree, "", sys_.AT_EMPTY_PATH, ATTRIBUTES, 0, sys_.MS_PRIVATE)
            sys_.move_mount(tree, "", HERE, self._slot(cell), sys_.MOVE_MOUNT_F_EMPTY_PATH)
        finally:
            os.close(tree)

    def remove(self, cell: int) -> None:
        """Take a slot away; safe to repeat."""
        slot = self._slot(cell)
        for _ in range(2):
            with contextlib.suppress(OSError):
                sys_.umount2(slot, sys_.MNT_DETACH)
        with contextlib.suppress(OSError):
            os.rmdir(slot)

    def _slot(self, cell: int) -> str:
        return f"{self.folder}/{cell}"
