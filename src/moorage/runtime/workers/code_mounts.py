"""Mounts code at /code, read-only, in a running sandbox without privileges.

The /code of each sandbox is a slave mount of its own folder here, its slot. A mount on the slot propagates into the
sandbox, which can neither change nor remove it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from moorage.runtime.sandbox import syscalls as sys_

ATTRIBUTES = sys_.MOUNT_ATTR_RDONLY | sys_.MOUNT_ATTR_NOSUID | sys_.MOUNT_ATTR_NODEV
AT_FDCWD = -100


class CodeMounts:
    """Slots of all sandboxes, in the invoker's mount namespace; they vanish with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        sys_.mount("tmpfs", str(folder), "tmpfs", sys_.MS_NOSUID | sys_.MS_NODEV, "mode=711,size=4m")
        sys_.mount(None, str(folder), None, sys_.MS_SHARED, None)

    def open(self, sandbox: int) -> int:
        """Return a descriptor of a new slot that can be mounted once, in the sandbox."""
        slot = self._slot(sandbox)
        os.mkdir(slot)
        # A bind mount onto itself makes the slot a separate peer group: code of other sandboxes does not propagate.
        sys_.mount(slot, slot, None, sys_.MS_BIND, None)
        sys_.mount(None, slot, None, sys_.MS_PRIVATE, None)
        sys_.mount(None, slot, None, sys_.MS_SHARED, None)
        descriptor = sys_.open_tree(AT_FDCWD, slot, sys_.OPEN_TREE_CLONE | sys_.OPEN_TREE_CLOEXEC)
        sys_.mount_setattr(descriptor, "", sys_.AT_EMPTY_PATH, ATTRIBUTES, 0, sys_.MS_SLAVE)
        return descriptor

    def put(self, sandbox: int, code: Path) -> None:
        """Mount the code in the sandbox."""
        tree = sys_.open_tree(AT_FDCWD, str(code), sys_.OPEN_TREE_CLONE | sys_.OPEN_TREE_CLOEXEC)
        try:
            sys_.mount_setattr(tree, "", sys_.AT_EMPTY_PATH, ATTRIBUTES, 0, sys_.MS_PRIVATE)
            sys_.move_mount(tree, "", AT_FDCWD, self._slot(sandbox), sys_.MOVE_MOUNT_F_EMPTY_PATH)
        finally:
            os.close(tree)

    def remove(self, sandbox: int) -> None:
        """Unmount and remove a slot; safe to repeat."""
        slot = self._slot(sandbox)
        for _ in range(2):
            with contextlib.suppress(OSError):
                sys_.umount2(slot, sys_.MNT_DETACH)
        with contextlib.suppress(OSError):
            os.rmdir(slot)

    def _slot(self, sandbox: int) -> str:
        return f"{self.folder}/{sandbox}"
