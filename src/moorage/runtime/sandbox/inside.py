"""Steps into a sandbox that every process takes which becomes a program of a user's: after fork, before execve."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping

from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups import files

TMP = "/tmp"  # noqa: S108
COUNTS_BY_NAMESPACE = (5, 14)  # Before, a user's processes were counted together, whatever namespace they were in.
_HIDDEN = sys_.MS_NOSUID | sys_.MS_NODEV


def bounds(
    controllers: frozenset[str], *, memory_mb: int, pids: int, is_own_user: bool, is_root: bool, is_boxed: bool
) -> dict[int, int]:
    """Return the limits of each process that stand in for those of the group, where it cannot have them."""
    found = {}
    if "memory" not in controllers:
        # Whoever watches sees what all processes hold together; this is for one that is too quick for that.
        found[resource.RLIMIT_DATA] = memory_mb * 5 // 4 << 20
    counts_alone = is_own_user if is_root else files.kernel() >= COUNTS_BY_NAMESPACE
    if "pids" not in controllers and counts_alone and is_boxed:
        found[resource.RLIMIT_NPROC] = pids
    return found


def set_limits(limits: Mapping[int, int]) -> None:
    for limit, most in limits.items():
        hard = resource.getrlimit(limit)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)  # Only root could raise it.
        resource.setrlimit(limit, (most, most))


def clone_mount(folder: str) -> int:
    """Return a mount of a folder that can be put anywhere, taken while the host's paths are still in sight."""
    return sys_.open_tree(sys_.AT_FDCWD, folder, sys_.OPEN_TREE_CLONE | sys_.OPEN_TREE_CLOEXEC)


def place_mounts(clones: Mapping[str, int], tmp_mb: int) -> None:
    """Put what can be written to in place (path inside -> clone), and a private folder for temporary files."""
    if TMP not in clones:
        sys_.mount("tmpfs", TMP, "tmpfs", _HIDDEN, f"mode=1777,size={tmp_mb}m")
    attributes = sys_.MOUNT_ATTR_NOSUID | sys_.MOUNT_ATTR_NODEV
    for inside, clone in clones.items():
        sys_.mount_setattr(clone, "", sys_.AT_EMPTY_PATH, attributes, 0, sys_.MS_PRIVATE)
        sys_.move_mount(clone, "", sys_.AT_FDCWD, inside, sys_.MOVE_MOUNT_F_EMPTY_PATH)


def take_streams(out: int, error: int) -> None:
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(error, 2)


def give_up_rights(uid: int | None) -> None:
    """Become this user, where one is given, and give up every right for good."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        sys_.drop_bounding_set()
        os.setresuid(uid, uid, uid)
    sys_.drop_capabilities(bounding=uid is None)
    sys_.no_new_privs()
    sys_.set_pdeathsig(signal.SIGKILL)  # The kernel forgets it when rights change.
    os.umask(0o022)


def find_program(argv: list[str], env: Mapping[str, str]) -> str:
    """Return the program's path, as a shell of its own PATH would find it."""
    program = argv[0]
    if "/" in program:
        return program
    places = (f"{place}/{program}" for place in env.get("PATH", os.defpath).split(":"))
    return next((place for place in places if os.access(place, os.X_OK)), program)


def close_all_but(*kept: int) -> None:
    """Close whatever is open beyond the three usual streams. What is kept ends with `execve` all the same."""
    first = 3
    for fd in (*sorted(kept), 65536):
        os.closerange(first, fd)
        first = fd + 1
