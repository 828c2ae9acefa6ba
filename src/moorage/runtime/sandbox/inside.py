"""The sandbox launcher: steps between fork and execve of builds, apps, servers, runs and function workers.

A forked process calls `mount_own` in its new namespaces and then `seal`; afterwards it may run users' code. Callers add
the steps that only their programs need.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Mapping, Sequence

from moorage.runtime.sandbox import root, seccomp
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.sandbox.rootfs import users
from moorage.runtime.sandbox.rootfs.users import Identity

TMP = "/tmp"  # noqa: S108
NPROC_PER_NAMESPACE = (5, 14)  # kernel version; older ones count a user's processes over all user namespaces
_TMP_FLAGS = sys_.MS_NOSUID | sys_.MS_NODEV


def bounds(
    controllers: frozenset[str], *, memory_mb: int, pids: int, is_own_user: bool, is_root: bool, is_boxed: bool
) -> dict[int, int]:
    """Return the resource limits per process that replace missing cgroup controllers."""
    limits = {}
    if "memory" not in controllers:
        # The supervising process polls the memory of all processes together; this stops a process that is faster.
        limits[resource.RLIMIT_DATA] = memory_mb * 5 // 4 << 20
    counts_alone = is_own_user if is_root else files.kernel() >= NPROC_PER_NAMESPACE
    if "pids" not in controllers and counts_alone and is_boxed:
        limits[resource.RLIMIT_NPROC] = pids
    return limits


def set_limits(limits: Mapping[int, int]) -> None:
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)  # Only root may raise a hard limit.
        resource.setrlimit(limit, (value, value))


def clone_mount(path: str, attributes: int = 0) -> int:
    """Return a detached mount of a host folder or file, before the sandbox's root hides it."""
    clone = sys_.open_tree(sys_.AT_FDCWD, path, sys_.OPEN_TREE_CLONE | sys_.OPEN_TREE_CLOEXEC)
    attributes |= sys_.MOUNT_ATTR_NOSUID | sys_.MOUNT_ATTR_NODEV
    sys_.mount_setattr(clone, "", sys_.AT_EMPTY_PATH, attributes, 0, sys_.MS_PRIVATE)
    return clone


def place_mounts(clones: Mapping[str, int]) -> None:
    for inside, clone in clones.items():
        sys_.move_mount(clone, "", sys_.AT_FDCWD, inside, sys_.MOVE_MOUNT_F_EMPTY_PATH)


def mount_own(hostname: str, clones: Mapping[str, int], tmp: str | None, *, has_network: bool = True) -> None:
    """Mount /proc, the writable mounts (path inside -> clone), and a tmpfs with the options `tmp` on /tmp.

    With None, the caller mounts /tmp.
    """
    root.mount_proc()
    if tmp is not None and TMP not in clones:
        sys_.mount("tmpfs", TMP, "tmpfs", _TMP_FLAGS, f"mode=1777,{tmp}")
    place_mounts(clones)
    sys_.sethostname(hostname)
    if has_network:
        network.prepare_namespace()


def stream_owner(identity: Identity | None, uid: int | None) -> tuple[int, int] | None:
    """Return the ids of the program on the machine; None if they are those of this process."""
    if identity is None:
        return None if uid is None else (uid, uid)
    if identity.namespace is None:
        return None
    return identity.first_id + identity.uid, identity.first_id + identity.gid


def take_streams(out: int, error: int, owner: tuple[int, int] | None = None, *, stdin: int | None = None) -> None:
    """Use pipes as output streams; their owner may open them by path, as /dev/stdout is.

    The input is `stdin`, or /dev/null. A process that still has rights opened `stdin` before it mounted folders of a
    tenant: by path, it might open another file of the machine then.
    """
    if owner is not None:
        for stream in {out, error}:
            os.fchown(stream, *owner)
    os.dup2(os.open("/dev/null", os.O_RDONLY) if stdin is None else stdin, 0)
    os.dup2(out, 1)
    os.dup2(error, 2)


def seal(
    channel: socket.socket,
    message: bytes,
    sockets: Sequence[socket.socket],
    *,
    limits: Mapping[int, int],
    uid: int | None,
    program: bytes,
    kept: Sequence[int] = (),
    is_bounded: bool = False,
    identity: Identity | None = None,
) -> None:
    """Set limits, give up all rights and install the seccomp filter.

    `sockets` are the resolver's, none without a network. They are sent with `message`, after the notify descriptor of
    the filter and before the descriptors `kept`, and closed here. With `identity`, the program has a user of an image.
    """
    set_limits(limits)
    if identity is None:
        give_up_rights(uid, is_bounded=is_bounded)
    else:
        users.become(identity)
        _keep_rights_low()
    notify = seccomp.install(program, listener=bool(sockets))
    fds = [notify, *(each.fileno() for each in sockets), *kept] if notify is not None else list(kept)
    socket.send_fds(channel, [message], fds)
    for each in sockets:
        each.detach()
    for fd in fds:
        os.close(fd)


def give_up_rights(uid: int | None, *, is_bounded: bool = False) -> None:
    """Change to a user, unless it is None, and drop all capabilities permanently.

    `is_bounded` tells that the bounding set is empty already.
    """
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        if not is_bounded:
            sys_.drop_bounding_set()
        os.setresuid(uid, uid, uid)
    sys_.drop_capabilities(bounding=uid is None)
    _keep_rights_low()


def _keep_rights_low() -> None:
    sys_.no_new_privs()
    sys_.set_pdeathsig(signal.SIGKILL)  # The kernel clears it when credentials change.
    os.umask(0o022)


def find_program(argv: list[str], env: Mapping[str, str]) -> str:
    """Look up the program in the PATH of `env`."""
    program = argv[0]
    if "/" in program:
        return program
    paths = (f"{folder}/{program}" for folder in env.get("PATH", os.defpath).split(":"))
    return next((path for path in paths if os.access(path, os.X_OK)), program)


def close_all_but(*kept: int) -> None:
    """Close all descriptors above 2 except for `kept`, which close at `execve`."""
    first = 3
    for fd in (*sorted(kept), 65536):
        os.closerange(first, fd)
        first = fd + 1
