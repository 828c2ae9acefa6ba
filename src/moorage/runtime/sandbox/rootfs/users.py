"""User namespaces of image roots: uid 0 inside is an unprivileged id outside."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from moorage.core.kit.records import dataclass
from moorage.runtime.sandbox import root
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.rootfs.spec import IDS

# Capabilities of root inside. They apply to files and processes with ids of the range only: all other namespaces of
# the sandbox belong to the machine's user namespace, or their calls are denied by the seccomp filter.
_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _KILL, _SETGID, _SETUID, _SETPCAP = 0, 1, 3, 4, 5, 6, 7, 8
_NET_BIND_SERVICE, _SETFCAP = 10, 31
KEPT_CAPABILITIES = frozenset(
    {_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _KILL, _SETGID, _SETUID, _SETPCAP, _NET_BIND_SERVICE, _SETFCAP}
)

Extent = tuple[int, int, int]  # first id in the namespace or on the disk, first id of the host, count


@dataclass(frozen=True, slots=True)
class Identity:
    """User of the program, as ids of the image."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    home: str = "/"
    namespace: int | None = None  # user namespace with a range of ids; None to make one with a single id
    first_id: int = 0  # of the range, on the machine


def process_extents(first: int) -> list[Extent]:
    return [(0, first, IDS)]


def disk_extents(first: int) -> list[Extent]:
    """Return the map of mounts: ids of the image on the disk, and the range of the workload inside.

    The kernel works in an overlay's upper folder as the user that mounted it, the machine's root, which therefore
    needs an id on the disk too. It is above the ids of images, and never part of the namespace of a process.
    """
    return [*process_extents(first), (IDS, 0, 1)]


def owner_extents(first: int, owner: int, inside: int) -> list[Extent]:
    """Return the map of a mount whose files belong to `owner` on the disk and to `inside` in the sandbox.

    Files of other ids of the sandbox keep their host ids on the disk.
    """
    extents = [(owner, first + inside, 1), (first, first, inside), (first + inside + 1,) * 2 + (IDS - inside - 1,)]
    return [extent for extent in extents if extent[2]]


@contextlib.contextmanager
def user_namespace(uids: Sequence[Extent], gids: Sequence[Extent], proc: str = "/proc") -> Iterator[int]:
    """Yield a user namespace with these maps; a child holds it until they are set.

    `proc` shows the processes of this PID namespace. Only root may map ids of other users.
    """
    child = sys_.fork_into(sys_.CLONE_NEWUSER)
    if child == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        signal.pause()
        os._exit(0)
    try:
        for name, extents in (("uid_map", uids), ("gid_map", gids)):
            text = "".join(f"{inside} {outside} {count}\n" for inside, outside, count in extents)
            Path(f"{proc}/{child}/{name}").write_text(text)
        users = os.open(f"{proc}/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    try:
        yield users
    finally:
        os.close(users)


def become(identity: Identity) -> None:
    """Enter the user namespace, change to the user, and drop capabilities permanently."""
    kept = KEPT_CAPABILITIES if identity.uid == 0 else frozenset()
    if identity.namespace is not None:
        sys_.setns(identity.namespace, sys_.CLONE_NEWUSER)
        os.close(identity.namespace)
        os.setgroups(list(identity.groups))
        os.setresgid(identity.gid, identity.gid, identity.gid)
        sys_.drop_bounding_set(kept)
        os.setresuid(identity.uid, identity.uid, identity.uid)
    elif (identity.uid, identity.gid) != (os.getuid(), os.getgid()):
        uid, gid = os.getuid(), os.getgid()
        sys_.unshare(sys_.CLONE_NEWUSER)
        root.map_user(uid, gid, inside=identity.uid, inside_gid=identity.gid)
    sys_.drop_capabilities(keep=kept)
