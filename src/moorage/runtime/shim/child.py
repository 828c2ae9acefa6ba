"""Child side of an app's start, between the shim's `fork` and `execve`.

The forked process builds the sandbox around itself and stays as its process 1: it reaps orphans, forwards signals and
reports the app's wait status. An app cannot be process 1 itself, because the kernel discards every signal for which
process 1 has no handler. A database server has handlers for all signals that it gets, so it does run as process 1.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeGuard

from moorage.runtime.engines.ports import ReplicaSpec, RunSpec, ServerSpec
from moorage.runtime.sandbox import image_root, inside, layer, root, seccomp
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.network import setup as network

WORK = "/work"
DATA = "/data"
UNPRIVILEGED_ID = 1000  # uid inside the sandbox of servers and images, if the platform is not root: many refuse root
TMP_MB = 256
MIN_TMP_MB = 64
ROOT_MB = 64  # that an app may write to `/` and `/etc`; programs made for containers keep their data there
OPEN_FILES = 65_536
NAMESPACES = sys_.CLONE_NEWNS | sys_.CLONE_NEWPID | sys_.CLONE_NEWIPC | sys_.CLONE_NEWUTS | sys_.CLONE_NEWNET
STATUS = struct.Struct("=i")
# Sent by a sandbox: its seccomp notify descriptor, two resolver sockets, /tmp, two namespaces; the changes of its layer
DESCRIPTORS = 7

_FORWARDED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})


@dataclass(frozen=True, slots=True)
class ChildPipes:
    """The child's ends of the pipes and the socket to the shim."""

    out: int
    error: int
    failure: int  # gets the reason if the start fails; closed by `execve` if it succeeds
    channel: socket.socket  # to the child: go-ahead; to the shim: descriptors, then the app's wait status


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """Settings of a start that depend on the machine and on the state of the shim."""

    tree: Path  # an empty folder, the mount point of the sandbox's root file system
    env: Mapping[str, str]
    bounds: Mapping[int, int]  # resource limits that stand in for missing cgroup controllers
    user: tuple[int, int] | None  # uid and gid of the platform if it is not root: the sandbox has a user namespace then
    is_read_only: bool  # mount the volume read-only
    is_counted: bool  # a cgroup memory controller counts the kernel memory of the app


def become(spec: ReplicaSpec, context: LaunchContext, pipes: ChildPipes) -> NoReturn:
    """Turn this fork, which starts with all signals blocked, into the app."""
    try:
        _reset_signals()
        sys_.set_pdeathsig(signal.SIGKILL)
        _wait_for_go_ahead(pipes)
        if spec.is_boxed:
            _enter_sandbox(spec, context, pipes)
        else:
            _prepare_without_sandbox(spec, context, pipes)
        _start(spec, context, pipes)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            os.write(pipes.failure, str(error).encode(errors="replace"))
    finally:
        os._exit(1)


def _reset_signals() -> None:
    """Undo the shim's signal setup, which would report signals to its event loop."""
    os.umask(0o022)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE, *_FORWARDED):
        signal.signal(number, signal.SIG_DFL)


def _wait_for_go_ahead(pipes: ChildPipes) -> None:
    if not pipes.channel.recv(1):
        os._exit(1)  # The shim has exited.


def _enter_sandbox(spec: ReplicaSpec, context: LaunchContext, pipes: ChildPipes) -> None:
    if context.user:
        root.map_user(*context.user, inside=inside_id(spec))
    _hide_cgroups()
    root.keep_mounts_private()
    os.setsid()  # A signal to one's own process group reaches its members in other PID namespaces too.
    changes = _mount(spec, context)
    sockets = network.make_resolver_sockets()
    kept = [os.open(path, os.O_PATH if path == inside.TMP else os.O_RDONLY) for path in _SENT_PATHS]
    kept += [changes] if changes is not None else []
    inside.take_streams(pipes.out, pipes.error)
    inside.seal(
        pipes.channel,
        b"n",
        sockets,
        limits=_limits(spec, context),
        uid=spec.uid if spec.uid and not context.user else None,
        program=seccomp.build(notify=True, listens=not isinstance(spec, RunSpec), is_counted=context.is_counted),
        kept=kept,
    )
    _wait_for_go_ahead(pipes)  # The shim serves the sandbox's network from here on.
    _change_directory(spec)


def _hide_cgroups() -> None:
    """Enter a cgroup namespace, so that the app's cgroup looks like the root cgroup."""
    # This only hides names, such as the platform's folders and this run's key: a sandbox has no cgroup file system to
    # write to. So the app also starts if the kernel refuses, or has no cgroup namespaces left.
    with contextlib.suppress(OSError):
        sys_.unshare(sys_.CLONE_NEWCGROUP)


_SENT_PATHS = (inside.TMP, "/proc/self/ns/mnt", "/proc/self/ns/user")


def release_path(spec: ReplicaSpec) -> str:
    return f"{WORK}/{spec.base}".rstrip("/")


def working_directory(spec: ReplicaSpec) -> str:
    return spec.workdir or "/" if has_image(spec) else f"{release_path(spec)}/{spec.workdir}".rstrip("/")


def has_image(spec: ReplicaSpec) -> TypeGuard[RunSpec]:
    return isinstance(spec, RunSpec) and bool(spec.image)


def is_init(spec: ReplicaSpec) -> bool:
    """Whether the program is process 1: servers handle signals and reap orphans.

    An init process in front of them would cost 3.8 MB each.
    """
    return isinstance(spec, ServerSpec) and spec.is_boxed


def inside_id(spec: ReplicaSpec) -> int:
    """Return the uid inside a user namespace (if the platform is not root)."""
    return UNPRIVILEGED_ID if isinstance(spec, ServerSpec) or has_image(spec) else 0


def tmp_mb(spec: ReplicaSpec) -> int:
    """Return the size of the /tmp file system, whose content counts as memory."""
    return max(spec.memory_mb // 2, MIN_TMP_MB) if isinstance(spec, RunSpec) else TMP_MB


def _change_directory(spec: ReplicaSpec) -> None:
    folder = working_directory(spec)
    try:
        if has_image(spec) and f"{folder}/".startswith((f"{inside.TMP}/", f"{WORK}/")) and not os.path.exists(folder):
            os.makedirs(folder)
        os.chdir(folder)
    except OSError as error:
        if not has_image(spec):
            raise
        raise ValueError(f"the image's folder {folder!r} cannot be entered: {error.strerror}") from None


def _mount(spec: ReplicaSpec, context: LaunchContext) -> int | None:
    """Build the sandbox's root; return a descriptor of the changes of its folder, if any."""
    if has_image(spec):
        _mount_image(spec, context)
        return None
    volumes = {DATA: spec.volume} if spec.volume else {}
    binds = {release_path(spec): spec.release, **spec.binds, **volumes}
    is_layered = not isinstance(spec, ServerSpec)
    size_mb = ROOT_MB if is_layered else root.SIZE_MB
    root.build(context.tree, binds=binds, files=_files(spec), size_mb=size_mb)
    clones = {path: inside.clone_mount(folder) for path, folder in volumes.items()}
    root.enter(str(context.tree))
    inside.mount_own("app", clones, None if is_layered else f"size={tmp_mb(spec)}m")
    if spec.volume and context.is_read_only:
        sys_.mount_setattr(sys_.AT_FDCWD, DATA, 0, sys_.MOUNT_ATTR_RDONLY)
    uid = 0 if context.user else spec.uid
    if not is_layered:
        return None
    changes = layer.place(working_directory(spec), uid=uid, tmp_mb=tmp_mb(spec))
    root.make_writable()
    return changes


def _mount_image(spec: RunSpec, context: LaunchContext) -> None:
    names = {"hostname": "job\n", "hosts": "127.0.0.1 localhost job\n::1 localhost\n"}
    files = {**names, "resolv.conf": root.resolv_conf()}
    with_work = image_root.build(context.tree, Path(spec.image), uid=spec.uid or inside_id(spec), files=files)
    root.enter(str(context.tree))
    root.mount_proc(staging=inside.TMP)
    image_root.place_writable(tmp_mb(spec), with_work=with_work)
    sys_.sethostname("job")
    network.prepare_namespace()


def _files(spec: ReplicaSpec) -> dict[str, str]:
    uid = spec.uid or inside_id(spec)
    users = {"root": 0, **({"app": uid} if uid else {})}
    return {
        "/etc/hostname": "app\n",
        "/etc/hosts": "127.0.0.1 localhost app\n::1 localhost\n",
        "/etc/passwd": "".join(f"{name}:x:{uid}:{uid}:{name}:/tmp:/bin/sh\n" for name, uid in users.items()),
        "/etc/group": "".join(f"{name}:x:{uid}:\n" for name, uid in users.items()),
    }


def _limits(spec: ReplicaSpec, context: LaunchContext) -> dict[int, int]:
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: OPEN_FILES}
    # A server with a disk limit may write files up to that size: large sorts use unnamed temporary files.
    max_mb = spec.disk_mb if isinstance(spec, ServerSpec) else max(spec.disk_mb, tmp_mb(spec))
    size = {resource.RLIMIT_FSIZE: max_mb << 20} if max_mb else {}
    return {**limits, **size, **context.bounds}


def _prepare_without_sandbox(spec: ReplicaSpec, context: LaunchContext, pipes: ChildPipes) -> None:
    os.setsid()
    sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
    inside.take_streams(pipes.out, pipes.error)
    inside.set_limits(_limits(spec, context))
    os.umask(0o022)
    os.chdir(Path(spec.release, spec.workdir))
    if isinstance(spec, ServerSpec) and not context.user:
        inside.give_up_rights(spec.uid)


def _start(spec: ReplicaSpec, context: LaunchContext, pipes: ChildPipes) -> None:
    if is_init(spec):
        _become_program(spec, context, pipes)
    # This process's memory still holds the shim's secrets, such as its token, and the app may have the same uid.
    sys_.set_dumpable(False)
    app = os.fork()
    if app == 0:
        os.setpgid(0, 0)
        _become_program(spec, context, pipes)
    with contextlib.suppress(OSError):
        os.setpgid(app, app)  # In both processes: a signal may have to be forwarded before the child has done it.
    inside.take_streams(0, 0)
    inside.close_all_but(pipes.channel.fileno())
    pipes.channel.send(STATUS.pack(_run_init(app)))
    os._exit(0)


def _become_program(spec: ReplicaSpec, context: LaunchContext, pipes: ChildPipes) -> NoReturn:
    sys_.set_pdeathsig(signal.SIGKILL)
    inside.close_all_but(pipes.failure)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    _execute(spec, context.env)


def _execute(spec: ReplicaSpec, env: Mapping[str, str]) -> NoReturn:
    program = inside.find_program(spec.argv, env)
    try:
        os.execve(program, spec.argv, env)  # noqa: S606 - no shell
    except FileNotFoundError:
        if not has_image(spec) or ("/" in program and os.path.exists(program)):
            raise
        raise ValueError(f"there is no program {spec.argv[0]!r} in the image") from None


def _run_init(app: int) -> int:
    """Forward signals to the app's process group and reap; return its wait status."""
    while True:
        number = signal.sigwait({signal.SIGCHLD, *_FORWARDED})
        if number != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(app, number)
            continue
        with contextlib.suppress(ChildProcessError):
            while (child := os.waitpid(-1, os.WNOHANG))[0]:
                if child[0] == app:
                    return child[1]
