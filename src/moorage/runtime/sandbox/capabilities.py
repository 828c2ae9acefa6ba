"""Detection of the kernel features that sandboxes need, by using each of them.

Kernels, containers and hardened systems each forbid different features, and no version number or file mode shows it.
Every test runs in a forked child that exits at once, so it changes neither this process nor the machine.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable
from pathlib import Path

from moorage.core.kit.records import dataclass
from moorage.runtime.sandbox import root, seccomp, syscalls
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
OTHER_USER = 200_000  # a uid without an account, as functions have
NOTIFY_TIMEOUT_MS = 2000
SYSCTLS = Path("/proc/sys")
IN_CONTAINER = (
    "in a container, start it with --privileged, or with --cap-add SYS_ADMIN and seccomp and AppArmor unconfined"
)


@dataclass(frozen=True, slots=True)
class Report:
    is_root: bool
    user_namespaces: bool  # as this user
    unprivileged_user_namespaces: bool  # as an unprivileged user; root can test this too
    namespaces: frozenset[str]  # of `NAMESPACES`, as root or inside a user namespace
    proc: bool  # mounting /proc in a new PID namespace
    mount_trees: bool  # open_tree and move_mount
    mount_attributes: bool  # mount_setattr
    filters: bool  # seccomp
    can_notify: bool  # seccomp notification: a supervisor can answer a call and replace a socket; pidfd_getfd
    own_users: bool  # a separate uid for each function
    cgroups: str  # "v1", "v2" or "none"
    controllers: frozenset[str]
    missing: tuple[str, ...]  # problems that prevent sandboxes, each with its solution

    @property
    def can_sandbox(self) -> bool:
        return not self.missing

    @property
    def can_connect(self) -> bool:
        """Whether functions can have network access, which the supervisor checks."""
        return self.can_sandbox and self.can_notify


def probe() -> Report:
    """Test all features; takes about 50 ms."""
    user_namespaces = bool(_run_in_child(_enter_user_namespace))
    namespaces = frozenset((_run_in_child(_try_namespaces) or "").split())
    mounts = (_run_in_child(_try_mounts) or "").split()
    proc, filters = bool(_run_in_child(_try_proc)), bool(_run_in_child(_try_filter))
    kind, controllers = cgroups.look()
    return Report(
        is_root=os.geteuid() == 0,
        user_namespaces=user_namespaces,
        unprivileged_user_namespaces=bool(_run_in_child(_enter_user_namespace_as_nobody)),
        namespaces=namespaces,
        proc=proc,
        mount_trees="trees" in mounts,
        mount_attributes="attributes" in mounts,
        filters=filters,
        can_notify=_can_notify(),
        own_users=bool(_run_in_child(_become_another_user)),
        cgroups=kind,
        controllers=controllers,
        missing=_missing(namespaces, user_namespaces, proc, len(mounts) == 2, filters),
    )


def user_namespace_fix(sysctls: Path = SYSCTLS) -> str:
    """Return the setting that forbids user namespaces, with the command to change it."""
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
    problems = []
    lacking = [name for name in NAMESPACES if name not in namespaces]
    if lacking and os.geteuid() != 0 and not user:
        problems.append(user_namespace_fix())
    elif lacking:
        problems.append(f"namespaces cannot be created ({', '.join(lacking)}): {IN_CONTAINER}")
    if not lacking and not mounts:
        problems.append("mounts cannot be cloned and made read-only: use Linux 5.12 or newer; " + IN_CONTAINER)
    if not lacking and not proc:
        problems.append("/proc is masked: start the container with --security-opt systempaths=unconfined")
    if not filters:
        problems.append(
            "system calls cannot be filtered: use a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64"
        )
    return tuple(problems)


def _run_in_child(test: Callable[[], str]) -> str | None:
    """Run a test in a forked child; return its answer, None if it failed."""
    answer, answer_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(answer_end, test().encode())
        finally:
            os._exit(0)  # also after an exception: the empty answer means failure
    os.close(answer_end)
    with open(answer, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text or None


def _enter_user_namespace() -> str:
    user, group = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    root.map_user(user, group)
    return "ok"


def _enter_user_namespace_as_nobody() -> str:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        syscalls.set_dumpable(True)  # Otherwise this process's /proc files would belong to root.
    return _enter_user_namespace()


def _enter_mount_namespace() -> None:
    """Enter a mount namespace; without root, inside a new user namespace."""
    if os.geteuid() != 0:
        _enter_user_namespace()
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)


def _try_namespaces() -> str:
    _enter_mount_namespace()
    created = []
    for name, flag in NAMESPACES.items():
        with contextlib.suppress(OSError):
            syscalls.unshare(flag)
            created.append(name)
    return " ".join(created)


def _try_mounts() -> str:
    _enter_mount_namespace()
    flags = syscalls.OPEN_TREE_CLONE | syscalls.OPEN_TREE_CLOEXEC | syscalls.AT_RECURSIVE
    clone = syscalls.open_tree(syscalls.AT_FDCWD, "/usr", flags)
    read_only = syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID
    working = []
    with contextlib.suppress(OSError):
        syscalls.mount_setattr(clone, "", syscalls.AT_EMPTY_PATH | syscalls.AT_RECURSIVE, read_only)
        working.append("attributes")
    syscalls.mount("tmpfs", "/tmp", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV)  # noqa: S108
    os.mkdir("/tmp/usr")  # noqa: S108
    syscalls.move_mount(clone, "", syscalls.AT_FDCWD, "/tmp/usr", syscalls.MOVE_MOUNT_F_EMPTY_PATH)  # noqa: S108
    return " ".join([*working, "trees"])


def _try_proc() -> str:
    _enter_mount_namespace()
    syscalls.unshare(syscalls.CLONE_NEWPID)
    return _run_in_child(_mount_proc) or ""  # Only children of this process are in the new namespace.


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
    """Test the network supervisor's calls on a child that connects under the filter."""
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket() as replacement:
        child = os.fork()
        if child == 0:
            try:
                _connect_with_filter(theirs)
            finally:
                os._exit(0)
        theirs.close()
        try:
            callers.namespace_of(replacement)  # The supervisor needs it to distinguish host sockets from a sandbox's.
            return _supervise(child, ours, replacement)
        except OSError:
            return False
        finally:
            ours.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, 9)
            os.waitpid(child, 0)


def _connect_with_filter(supervisor: socket.socket) -> None:
    """Install a filter, connect, and report success to the supervisor."""
    with socket.socket() as sock:
        syscalls.no_new_privs()
        notify = seccomp.install(seccomp.build(notify=True), listener=True)
        supervisor.sendall(f"{notify} {sock.fileno()}".encode())
        supervisor.recv(1)
        sock.connect(("192.0.2.1", 9))  # An unreachable address: only the supervisor can make this succeed.
        supervisor.sendall(b"ok")


def _supervise(child: int, channel: socket.socket, replacement: socket.socket) -> bool:
    descriptors = channel.recv(64).split()
    if len(descriptors) != 2:
        return False
    process = os.pidfd_open(child)
    try:
        listener = SeccompListener(syscalls.pidfd_getfd(process, int(descriptors[0])))
    finally:
        os.close(process)
    try:
        channel.sendall(b"!")
        if not select.select([listener.fd], [], [], NOTIFY_TIMEOUT_MS / 1000)[0]:
            return False
        call = listener.receive()
        if call is None:
            return False
        listener.replace_descriptor(call, replacement.fileno(), int(descriptors[1]), cloexec=True)
        listener.answer(call, 0)
        return channel.recv(2) == b"ok"
    finally:
        listener.close()


def _sysctl(folder: Path, name: str) -> int | None:
    try:
        return int((folder / name).read_text())
    except (OSError, ValueError):
        return None
