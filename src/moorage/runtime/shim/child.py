"""Child side of an app's start, between the shim's `fork` and `execve`.

The forked process builds the sandbox around itself and stays as its process 1: it reaps orphans, forwards signals and
reports the app's wait status. An app cannot be process 1 itself, because the kernel discards every signal for which
process 1 has no handler. A database server has handlers for all signals that it gets, so it does run as process 1.
Process 1 also runs the health checks of an app, which so have the same sandbox, user and filter as the app.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from moorage.core.kit.records import dataclass
from moorage.runtime.engines.local_specs import ShimApp, ShimRun, ShimServer, ShimSpec
from moorage.runtime.sandbox import inside, layer, root, seccomp
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.sandbox.rootfs import writable
from moorage.runtime.sandbox.rootfs.spec import ImageRoot
from moorage.runtime.sandbox.rootfs.users import Identity

WORK = "/work"
DATA = "/data"
UNPRIVILEGED_ID = 1000  # uid inside the sandbox of servers, if the platform is not root: many refuse root
TMP_MB = 256
MIN_TMP_MB = 64
ROOT_MB = 64  # that an app may write to `/` and `/etc`; programs made for containers keep their data there
OPEN_FILES = 65_536
NAMESPACES = sys_.CLONE_NEWNS | sys_.CLONE_NEWPID | sys_.CLONE_NEWIPC | sys_.CLONE_NEWUTS | sys_.CLONE_NEWNET
STATUS = struct.Struct("=i")
CHECK_SIGNAL = signal.SIGRTMIN + 1  # process 1 has to read a command of the health checks
START_CHECK, KILL_CHECK = b"c", b"k"
MISSING_PROGRAM = 127  # exit code of a health check whose program cannot be started, as in a shell
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
    checks: socket.socket  # to the child: START_CHECK, KILL_CHECK; to the shim: the wait status of each health check


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """Settings of a start that depend on the machine and on the state of the shim."""

    tree: Path  # an empty folder, the mount point of the sandbox's root file system
    env: Mapping[str, str]
    bounds: Mapping[int, int]  # resource limits that stand in for missing cgroup controllers
    user: tuple[int, int] | None  # uid and gid of the platform if it is not root: the sandbox has a user namespace then
    is_read_only: bool  # mount the volume read-only
    is_counted: bool  # a cgroup memory controller counts the kernel memory of the app


def become(spec: ShimSpec, context: LaunchContext, pipes: ChildPipes) -> NoReturn:
    """Turn this fork, which starts with all signals blocked, into the app."""
    try:
        _reset_signals()
        sys_.set_pdeathsig(signal.SIGKILL)
        _wait_for_go_ahead(pipes)
        env = context.env
        if spec.is_boxed:
            identity = _enter_sandbox(spec, context, pipes)
            env = {"HOME": identity.home, **env} if identity else env
        else:
            _prepare_without_sandbox(spec, context, pipes)
        _start(spec, env, pipes)
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


def _enter_sandbox(spec: ShimSpec, context: LaunchContext, pipes: ChildPipes) -> Identity | None:
    """Become process 1 of the sandbox; return the user of an image."""
    if context.user:
        root.map_user(*context.user, inside=inside_id(spec))
    _hide_cgroups()
    root.keep_mounts_private()
    os.setsid()  # A signal to one's own process group reaches its members in other PID namespaces too.
    null = os.open("/dev/null", os.O_RDONLY)
    identity = _enter_image(spec, context) if spec.files.image else None
    changes = _mount(spec, context) if not spec.files.image else None
    sockets = network.make_resolver_sockets()
    kept = [
        os.open("/" if spec.files.image else inside.TMP, os.O_PATH),
        *(os.open(each, os.O_RDONLY) for each in _SENT_PATHS),
    ]
    kept += [changes] if changes is not None else []
    has_single_id = identity is not None and identity.namespace is None
    uid = spec.uid if spec.uid and not context.user else None
    inside.take_streams(pipes.out, pipes.error, inside.stream_owner(identity, uid), stdin=null)
    inside.seal(
        pipes.channel,
        b"n",
        sockets,
        limits=_limits(spec, context),
        uid=uid,
        program=seccomp.build(
            notify=True,
            listens=not isinstance(spec, ShimRun),
            is_counted=context.is_counted,
            pretends_owners=has_single_id,
        ),
        kept=kept,
        identity=identity,
    )
    _wait_for_go_ahead(pipes)  # The shim serves the sandbox's network from here on.
    # A path may lead over /proc/self/fd to folders of the machine that descriptors of the shim refer to.
    inside.close_all_but(pipes.failure, pipes.channel.fileno(), pipes.checks.fileno())
    _change_directory(spec)
    return identity


def _hide_cgroups() -> None:
    """Enter a cgroup namespace, so that the app's cgroup looks like the root cgroup."""
    # This only hides names, such as the platform's folders and this run's key: a sandbox has no cgroup file system to
    # write to. So the app also starts if the kernel refuses, or has no cgroup namespaces left.
    with contextlib.suppress(OSError):
        sys_.unshare(sys_.CLONE_NEWCGROUP)


_SENT_PATHS = ("/proc/self/ns/mnt", "/proc/self/ns/user")


def release_path(spec: ShimSpec) -> str:
    return f"{WORK}/{spec.files.base}".rstrip("/")


def working_directory(spec: ShimSpec) -> str:
    return spec.files.workdir or "/" if spec.files.image else f"{release_path(spec)}/{spec.files.workdir}".rstrip("/")


def is_init(spec: ShimSpec) -> bool:
    """Whether the program is process 1: servers handle signals and reap orphans.

    An init process in front of them would cost 3.8 MB each.
    """
    return isinstance(spec, ShimServer) and spec.is_boxed


def inside_id(spec: ShimSpec) -> int:
    """Return the uid inside a user namespace (if the platform is not root)."""
    return UNPRIVILEGED_ID if isinstance(spec, ShimServer) else 0


def tmp_mb(spec: ShimSpec) -> int:
    """Return the size of the /tmp file system, or of an image's changes, whose content counts as memory."""
    return max(spec.memory_mb // 2, MIN_TMP_MB) if isinstance(spec, ShimRun) or spec.files.image else TMP_MB


def _change_directory(spec: ShimSpec) -> None:
    """Enter the working directory as the program's user; `writable.enter` has entered that of an image as root."""
    folder = working_directory(spec)
    try:
        os.chdir("." if spec.files.image else folder)
    except OSError as error:
        if not spec.files.image:
            raise
        raise ValueError(f"the image's folder {folder!r} cannot be entered: {error.strerror}") from None


def _mount(spec: ShimSpec, context: LaunchContext) -> int | None:
    """Build the sandbox's root; return a descriptor of the changes of its folder, if any."""
    volumes = {DATA: spec.volume} if spec.volume else {}
    binds = {release_path(spec): spec.files.release, **spec.files.binds, **volumes}
    is_layered = not isinstance(spec, ShimServer)
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


def _enter_image(spec: ShimSpec, context: LaunchContext) -> Identity:
    """Make an image's writable root the root of this process; return the program's user."""
    image = ImageRoot(
        [spec.files.image],
        size_mb=tmp_mb(spec),
        first_id=spec.files.image_ids,
        user=spec.files.image_user,
        hostname="job" if isinstance(spec, ShimRun) else "app",
    )
    volumes = {DATA: spec.volume} if spec.volume else {}
    sealed = volumes if context.is_read_only else {}
    # `set_read_only` finds the volume by its path, so no link may lead to it.
    unlinked = frozenset(volumes)
    folders = writable.HostFolders({**spec.files.binds, **sealed}, {} if sealed else volumes, unlinked)
    return writable.enter(context.tree, image, folders, has_network=True, cwd=working_directory(spec))


def _files(spec: ShimSpec) -> dict[str, str]:
    return {
        **root.account_files("app", spec.uid or inside_id(spec)),
        "/etc/hostname": "app\n",
        "/etc/hosts": "127.0.0.1 localhost app\n::1 localhost\n",
    }


def _limits(spec: ShimSpec, context: LaunchContext) -> dict[int, int]:
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: OPEN_FILES}
    # A server with a disk limit may write files up to that size: large sorts use unnamed temporary files.
    max_mb = spec.disk_mb if isinstance(spec, ShimServer) else max(spec.disk_mb, tmp_mb(spec))
    size = {resource.RLIMIT_FSIZE: max_mb << 20} if max_mb else {}
    return {**limits, **size, **context.bounds}


def _prepare_without_sandbox(spec: ShimSpec, context: LaunchContext, pipes: ChildPipes) -> None:
    os.setsid()
    sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
    inside.take_streams(pipes.out, pipes.error)
    inside.set_limits(_limits(spec, context))
    os.umask(0o022)
    os.chdir(Path(spec.files.release, spec.files.workdir))
    if isinstance(spec, ShimServer) and not context.user:
        inside.give_up_rights(spec.uid)


def _start(spec: ShimSpec, env: Mapping[str, str], pipes: ChildPipes) -> None:
    if is_init(spec):
        _become_program(spec.argv, env, pipes, has_image=False)
    # This process's memory still holds the shim's secrets, such as its token, and the app may have the same uid.
    sys_.set_dumpable(False)
    app = os.fork()
    if app == 0:
        os.setpgid(0, 0)
        _become_program(spec.argv, env, pipes, has_image=bool(spec.files.image))
    with contextlib.suppress(OSError):
        os.setpgid(app, app)  # In both processes: a signal may have to be forwarded before the child has done it.
    inside.take_streams(0, 0)
    inside.close_all_but(pipes.channel.fileno(), pipes.checks.fileno())
    health_argv = spec.health_argv if isinstance(spec, ShimApp) else []
    checks = _HealthChecks(health_argv, env, pipes)
    pipes.channel.send(STATUS.pack(_run_init(app, _FORWARDED | {spec.stop_signal}, checks)))
    os._exit(0)


def _become_program(argv: list[str], env: Mapping[str, str], pipes: ChildPipes, *, has_image: bool) -> NoReturn:
    sys_.set_pdeathsig(signal.SIGKILL)
    inside.close_all_but(pipes.failure)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    _execute(argv, env, has_image=has_image)


def _execute(argv: list[str], env: Mapping[str, str], *, has_image: bool) -> NoReturn:
    program = inside.find_program(argv, env)
    try:
        os.execve(program, argv, env)  # noqa: S606 - no shell
    except FileNotFoundError:
        if not has_image or ("/" in program and os.path.exists(program)):
            raise
        raise ValueError(f"there is no program {argv[0]!r} in the image") from None


class _HealthChecks:
    """Health commands that process 1 runs, one at a time."""

    def __init__(self, argv: list[str], env: Mapping[str, str], pipes: ChildPipes) -> None:
        self._argv = argv
        self._env = env
        self._pipes = pipes
        self._pid = 0
        pipes.checks.setblocking(False)

    def read_command(self) -> None:
        try:
            command = self._pipes.checks.recv(1)
        except BlockingIOError:
            return  # The signal came from the app.
        if command == START_CHECK and self._argv and not self._pid:
            self._pid = os.fork()
            if self._pid == 0:
                self._become_check()
        elif command == KILL_CHECK and self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)

    def _become_check(self) -> NoReturn:
        try:
            os.setpgid(0, 0)
            sys_.set_pdeathsig(signal.SIGKILL)
            null = os.open("/dev/null", os.O_RDWR)
            inside.take_streams(null, null)
            inside.close_all_but()
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.execve(inside.find_program(self._argv, self._env), self._argv, self._env)  # noqa: S606 - no shell
        finally:
            os._exit(MISSING_PROGRAM)

    def on_exit(self, pid: int, status: int) -> None:
        if pid == self._pid:
            self._pid = 0
            with contextlib.suppress(OSError):
                self._pipes.checks.send(STATUS.pack(status))


def _run_init(app: int, forwarded: frozenset[int], checks: _HealthChecks) -> int:
    """Forward signals to the app's process group, run checks and reap; return the app's wait status."""
    while True:
        number = signal.sigwait({signal.SIGCHLD, CHECK_SIGNAL, *forwarded})
        if number == CHECK_SIGNAL:
            checks.read_command()
            continue
        if number != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(app, number)
            continue
        with contextlib.suppress(ChildProcessError):
            while (child := os.waitpid(-1, os.WNOHANG))[0]:
                if child[0] == app:
                    return child[1]
                checks.on_exit(*child)
