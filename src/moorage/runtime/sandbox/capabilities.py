"""What this machine lets us build sandboxes from, found out by building one: kernels, containers and hardened systems
each forbid something else, and no version number or file mode tells it.

Everything is tried in forked children that end at once, so nothing here changes this process or the machine.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from moorage.runtime.sandbox import seccomp, syscalls
from moorage.runtime.sandbox.cgroups import groups as cgroups
from moorage.runtime.sandbox.network import callers
from moorage.runtime.sandbox.network.notify import SeccompListener

NAMESPACES = {
    "mount": syscalls.CLONE_NEWNS,
    "pid": syscalls.CLONE_NEWPID,
    "net": syscalls.CLONE_NEWNET,
    "ipc": syscalls.CLONE_NEWIPC,
    "uts": syscalls.CLONE_NEWUTS,
    "cgroup": syscalls.CLONE_NEWCGROUP,
}
NOBODY = 65534
OTHER_USER = 200_000  # a user id that no account has, as functions get
ANSWER_MS = 2000
SYSCTLS = Path("/proc/sys")
IN_CONTAINER = (
    "in a container, start it with --privileged, or with --cap-add SYS_ADMIN and seccomp and AppArmor unconfined"
)


@dataclass(frozen=True, slots=True)
class Report:
    is_root: bool
    user_namespaces: bool  # as this user
    unprivileged_user_namespaces: bool  # as an ordinary user, which root can tell as well
    namespaces: frozenset[str]  # of `NAMESPACES`, as root or inside a user namespace of our own
    proc: bool  # a /proc of a new process namespace
    mount_trees: bool  # open_tree and move_mount
    mount_attributes: bool  # mount_setattr
    filters: bool  # seccomp
    can_notify: bool  # a supervisor may answer a call and put a socket in place; pidfd_getfd
    own_users: bool  # each function under a user id of its own
    cgroups: str  # "v1", "v2" or "none"
    controllers: frozenset[str]
    missing: tuple[str, ...]  # what stands in the way of a sandbox, each with what to do

    @property
    def can_sandbox(self) -> bool:
        return not self.missing

    @property
    def can_connect(self) -> bool:
        """Whether functions can be let out to the network: the supervisor needs to be asked about every connection."""
        return self.can_sandbox and self.can_notify


def probe() -> Report:
    """Try everything; about 50 ms."""
    own = bool(_tried(_enter_user_namespace))
    namespaces = frozenset((_tried(_try_namespaces) or "").split())
    mounts = (_tried(_try_mounts) or "").split()
    proc, filters = bool(_tried(_try_proc)), bool(_tried(_try_filter))
    kind, controllers = cgroups.look()
    return Report(
        is_root=os.geteuid() == 0,
        user_namespaces=own,
        unprivileged_user_namespaces=bool(_tried(_enter_user_namespace_as_nobody)),
        namespaces=namespaces,
        proc=proc,
        mount_trees="trees" in mounts,
        mount_attributes="attributes" in mounts,
        filters=filters,
        can_notify=_can_notify(),
        own_users=bool(_tried(_become_another_user)),
        cgroups=kind,
        controllers=controllers,
        missing=_missing(namespaces, own, proc, len(mounts) == 2, filters),
    )


def user_namespace_fix(sysctls: Path = SYSCTLS) -> str:
    """Say which switch of the kernel stands in the way of user namespaces."""
    if _sysctl(sysctls, "kernel/unprivileged_userns_clone") == 0:
        return "user namespaces are switched off: sysctl -w kernel.unprivileged_userns_clone=1"
    if _sysctl(sysctls, "user/max_user_namespaces") == 0:
        return "no user namespaces are allowed: sysctl -w user.max_user_namespaces=15000"
    if _sysctl(sysctls, "kernel/apparmor_restrict_unprivileged_userns") == 1:
        return (
            "AppArmor forbids user namespaces to ordinary users: run Moorage as root, or allow them with: "
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        )
    return f"user namespaces are forbidden: run Moorage as root; {IN_CONTAINER}"


def _missing(namespaces: frozenset[str], user: bool, proc: bool, mounts: bool, filters: bool) -> tuple[str, ...]:
    found = []
    lacking = [name for name in NAMESPACES if name not in namespaces]
    if lacking and os.geteuid() != 0 and not user:
        found.append(user_namespace_fix())
    elif lacking:
        found.append(f"namespaces cannot be made ({', '.join(lacking)}): {IN_CONTAINER}")
    if not lacking and not mounts:
        found.append("mounts cannot be copied and sealed: use Linux 5.12 or newer; " + IN_CONTAINER)
    if not lacking and not proc:
        found.append("/proc is masked: start the container with --security-opt systempaths=unconfined")
    if not filters:
        found.append("system calls cannot be filtered: use a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64")
    return tuple(found)


def _tried(attempt: Callable[[], str]) -> str | None:
    """Run something in a forked child; return its answer, None when it failed."""
    answers, answer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(answer, attempt().encode())
        finally:
            os._exit(0)  # Whatever it raised: no answer says that it failed, and this process goes no further.
    os.close(answer)
    with open(answers, "rb") as read:
        said = read.read().decode()
    os.waitpid(child, 0)
    return said or None


def _enter_user_namespace() -> str:
    user, group = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path(f"/proc/self/{name}").write_text(text)
    return "ok"


def _enter_user_namespace_as_nobody() -> str:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        syscalls.set_dumpable(True)  # Else the files of this process would belong to root.
    return _enter_user_namespace()


def _gain_rights() -> None:
    """Get to where namespaces may be made and things be mounted: root is there, others need a user namespace."""
    if os.geteuid() != 0:
        _enter_user_namespace()
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)


def _try_namespaces() -> str:
    _gain_rights()
    made = []
    for name, flag in NAMESPACES.items():
        with contextlib.suppress(OSError):
            syscalls.unshare(flag)
            made.append(name)
    return " ".join(made)


def _try_mounts() -> str:
    _gain_rights()
    flags = syscalls.OPEN_TREE_CLONE | syscalls.OPEN_TREE_CLOEXEC | syscalls.AT_RECURSIVE
    copy = syscalls.open_tree(syscalls.AT_FDCWD, "/usr", flags)
    sealed = syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID
    worked = []
    with contextlib.suppress(OSError):
        syscalls.mount_setattr(copy, "", syscalls.AT_EMPTY_PATH | syscalls.AT_RECURSIVE, sealed)
        worked.append("attributes")
    syscalls.mount("tmpfs", "/tmp", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV)  # noqa: S108
    os.mkdir("/tmp/usr")  # noqa: S108
    syscalls.move_mount(copy, "", syscalls.AT_FDCWD, "/tmp/usr", syscalls.MOVE_MOUNT_F_EMPTY_PATH)  # noqa: S108
    return " ".join([*worked, "trees"])


def _try_proc() -> str:
    _gain_rights()
    syscalls.unshare(syscalls.CLONE_NEWPID)
    return _tried(_mount_proc) or ""  # Only the children of this process are in the new namespace.


def _mount_proc() -> str:
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", "/proc", "proc", flags)
    return "ok"


def _try_filter() -> str:
    syscalls.no_new_privs()
    seccomp.install(seccomp.build(notify=False), listener=False)
    return "ok"


def _become_another_user() -> str:
    os.setgroups([])
    os.setresgid(OTHER_USER, OTHER_USER, OTHER_USER)
    os.setresuid(OTHER_USER, OTHER_USER, OTHER_USER)
    return "ok"


def _can_notify() -> bool:
    """Play supervisor to a child: fetch its listener, answer its `connect`, and put a socket of ours in place."""
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket() as standing_in:
        child = os.fork()
        if child == 0:
            try:
                _connect_under_notice(theirs)
            finally:
                os._exit(0)
        theirs.close()
        try:
            callers.namespace_of(standing_in)  # The supervisor tells sockets of the host from a sandbox's by this.
            return _supervise(child, ours, standing_in)
        except OSError:
            return False
        finally:
            ours.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, 9)
            os.waitpid(child, 0)


def _connect_under_notice(supervisor: socket.socket) -> None:
    """Install a listener, tell its number, and say so when the supervisor makes the `connect` succeed."""
    with socket.socket() as sock:
        syscalls.no_new_privs()
        listener = seccomp.install(seccomp.build(notify=True), listener=True)
        supervisor.sendall(f"{listener} {sock.fileno()}".encode())
        supervisor.recv(1)
        sock.connect(("192.0.2.1", 9))  # Nobody is there: only the supervisor can let this succeed.
        supervisor.sendall(b"ok")


def _supervise(child: int, channel: socket.socket, standing_in: socket.socket) -> bool:
    told = channel.recv(64).split()
    if len(told) != 2:
        return False
    process = os.pidfd_open(child)
    try:
        listener = SeccompListener(syscalls.pidfd_getfd(process, int(told[0])))
    finally:
        os.close(process)
    try:
        channel.sendall(b"!")
        if not select.select([listener.fd], [], [], ANSWER_MS / 1000)[0]:
            return False
        asked = listener.receive()
        if asked is None:
            return False
        listener.replace_descriptor(asked, standing_in.fileno(), int(told[1]), cloexec=True)
        listener.answer(asked, 0)
        return channel.recv(2) == b"ok"
    finally:
        listener.close()


def _sysctl(folder: Path, name: str) -> int | None:
    try:
        return int((folder / name).read_text())
    except (OSError, ValueError):
        return None
