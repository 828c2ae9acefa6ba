"""Mounts that only one test sees: other tests look at the mounts of the machine at the same time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from moorage.runtime.sandbox import root
from moorage.runtime.sandbox import syscalls as sys_

CLONE_FS = 0x200


@contextlib.contextmanager
def own_mounts() -> Iterator[None]:
    """Let this process, and all that it starts meanwhile, have a mount namespace of its own, where it is root."""
    if os.getuid() != 0:
        yield
        return
    before = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    place = os.getcwd()
    try:
        sys_.unshare(sys_.CLONE_NEWNS)
        root.keep_mounts_private()
        yield
    finally:
        sys_.unshare(CLONE_FS)  # Threads that were started meanwhile share it, and the kernel refuses then.
        sys_.setns(before, sys_.CLONE_NEWNS)
        os.close(before)
        os.chdir(place)
