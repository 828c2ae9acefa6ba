"""The processes of an app, on their way from the shim's fork to the app itself.

The first one makes the sandbox around itself and stays as its process 1: it reaps what is orphaned, passes signals on
and tells how the app ended. An app could not be process 1 itself, for the kernel hides from that one every signal which
it does not handle. A database server handles them, and is process 1. All of this runs between `fork` and `execve`.
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
from typing import NoReturn

from moorage.runtime.engines.ports import ReplicaSpec
from moorage.runtime.sandbox import image_root, inside, root, seccomp
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.network import setup as network

WORK = "/work"
DATA = "/data"
OWN_ID = 1000  # what a server is called inside, where the platform is not root: many refuse to be root
TMP_MB = 256
LEAST_TMP_MB = 64
OPEN_FILES = 65_536
NAMESPACES = sys_.CLONE_NEWNS | sys_.CLONE_NEWPID | sys_.CLONE_NEWIPC | sys_.CLONE_NEWUTS | sys_.CLONE_NEWNET
STATUS = struct.Struct("=i")
DESCRIPTORS = 6  # what a sandbox hands over: its listener, two resolver sockets, /tmp, two namespaces

_PASSED_ON = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})


@dataclass(frozen=True, slots=True)
class Ends:
    """The child's ends of what leads to the shim."""

    out: int
    error: int
    failure: int  # Says that there is no app, and why; closed by `execve`.
    channel: socket.socket  # the word to go on, then descriptors, at last how the app ended


@dataclass(frozen=True, slots=True)
class World:
    """What the shim has found out about the machine, and decided."""

    tree: Path  # an empty folder on which the sandbox's file system is mounted
    env: Mapping[str, str]
    bounds: Mapping[int, int]
    user: tuple[int, int] | None  # who we are, where that is not root: such a sandbox has a user namespace
    is_sealed: bool  # the volume cannot be written to
    is_counted: bool  # a memory controller counts what the kernel holds for the app


def become(spec: ReplicaSpec, world: World, ends: Ends) -> NoReturn:
    """Turn this fork into the app. All signals are blocked in the beginning."""
    try:
        _forget_handlers()
        sys_.set_pdeathsig(signal.SIGKILL)
        _wait_for_word(ends)
        if spec.is_boxed:
            _enter_box(spec, world, ends)
        else:
            _stay_outside(spec, world, ends)
        _start(spec, world, ends)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            os.write(ends.failure, str(error).encode(errors="replace"))
    finally:
        os._exit(1)


def _forget_handlers() -> None:
    """Undo what the shim has set: its event loop must not hear of our signals."""
    os.umask(0o022)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE, *_PASSED_ON):
        signal.signal(number, signal.SIG_DFL)


def _wait_for_word(ends: Ends) -> None:
    if not ends.channel.recv(1):
        os._exit(1)  # The shim has gone.


def _enter_box(spec: ReplicaSpec, world: World, ends: Ends) -> None:
    if world.user:
        root.map_user(*world.user, inside=own_id(spec))
    _hide_groups()
    root.keep_mounts_private()
    os.setsid()  # A signal to one's own process group reaches its members in other namespaces too.
    _furnish(spec, world)
    network.prepare_namespace()
    udp, tcp = network.make_resolver_sockets()
    kept = [os.open(path, os.O_PATH if path == inside.TMP else os.O_RDONLY) for path in _KEPT]
    inside.take_streams(ends.out, ends.error)
    inside.set_limits(_limits(spec, world))
    inside.give_up_rights(spec.uid if spec.uid and not world.user else None)
    program = seccomp.build(notify=True, door=not spec.is_once, is_counted=world.is_counted)
    listener = seccomp.install(program, listener=True)
    assert listener is not None
    socket.send_fds(ends.channel, [b"n"], [listener, udp.fileno(), tcp.fileno(), *kept])
    for fd in (listener, *kept):
        os.close(fd)
    udp.close()
    tcp.close()
    _wait_for_word(ends)  # From here on somebody answers for the network; and whoever asked for us still lives.
    _go_to(spec)


def _hide_groups() -> None:
    """Let the control groups that we have been put into look like the topmost ones, from here on."""
    # It keeps names from an app, such as those of the platform's folders and of this run, and guards nothing: there is
    # nothing of control groups to write to in a sandbox. An app starts where the kernel refuses or has no more of them.
    with contextlib.suppress(OSError):
        sys_.unshare(sys_.CLONE_NEWCGROUP)


_KEPT = (inside.TMP, "/proc/self/ns/mnt", "/proc/self/ns/user")


def place_of(spec: ReplicaSpec) -> str:
    return f"{WORK}/{spec.base}".rstrip("/") if not spec.image else spec.workdir or "/"


def is_first(spec: ReplicaSpec) -> bool:
    """Tell whether what runs is process 1 itself: servers handle every signal that they are sent, and reap.

    A process that stays before them would be 3.8 MB for each.
    """
    return spec.is_server and spec.is_boxed


def own_id(spec: ReplicaSpec) -> int:
    """Return what its user is called inside, where the platform is not root."""
    return OWN_ID if spec.is_server or spec.image else 0


def tmp_mb(spec: ReplicaSpec) -> int:
    """Return how much it may keep in its temporary files, which count as memory."""
    return max(spec.memory_mb // 2, LEAST_TMP_MB) if spec.is_once else TMP_MB


def _go_to(spec: ReplicaSpec) -> None:
    place = place_of(spec)
    try:
        if spec.image and f"{place}/".startswith((f"{inside.TMP}/", f"{WORK}/")) and not os.path.exists(place):
            os.makedirs(place)
        os.chdir(place)
    except OSError as error:
        if not spec.image:
            raise
        raise ValueError(f"the image's folder {place!r} cannot be entered: {error.strerror}") from None


def _furnish(spec: ReplicaSpec, world: World) -> None:
    if spec.image:
        _furnish_image(spec, world)
        return
    volumes = {DATA: spec.volume} if spec.volume else {}
    root.build(world.tree, binds={place_of(spec): spec.release, **spec.binds, **volumes}, files=_files(spec))
    clones = {path: inside.clone_mount(folder) for path, folder in volumes.items()}
    root.enter(str(world.tree))
    root.mount_proc()
    inside.place_mounts(clones, tmp_mb(spec))
    if spec.volume and world.is_sealed:
        sys_.mount_setattr(sys_.AT_FDCWD, DATA, 0, sys_.MOUNT_ATTR_RDONLY)
    sys_.sethostname("app")


def _furnish_image(spec: ReplicaSpec, world: World) -> None:
    names = {"hostname": "job\n", "hosts": "127.0.0.1 localhost job\n::1 localhost\n"}
    files = {**names, "resolv.conf": root.resolv_conf()}
    with_work = image_root.build(world.tree, Path(spec.image), uid=spec.uid or own_id(spec), files=files)
    root.enter(str(world.tree))
    root.mount_proc(aside=inside.TMP)
    image_root.place_writable(tmp_mb(spec), with_work=with_work)
    sys_.sethostname("job")


def _files(spec: ReplicaSpec) -> dict[str, str]:
    uid = spec.uid or own_id(spec)
    users = {"root": 0, **({"app": uid} if uid else {})}
    return {
        "/etc/hostname": "app\n",
        "/etc/hosts": "127.0.0.1 localhost app\n::1 localhost\n",
        "/etc/passwd": "".join(f"{name}:x:{uid}:{uid}:{name}:/tmp:/bin/sh\n" for name, uid in users.items()),
        "/etc/group": "".join(f"{name}:x:{uid}:\n" for name, uid in users.items()),
    }


def _limits(spec: ReplicaSpec, world: World) -> dict[int, int]:
    given = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: OPEN_FILES}
    # A server's files are bounded by its disk, where one is given: what it sorts is in files without a name.
    most_mb = spec.disk_mb if spec.is_server else max(spec.disk_mb, tmp_mb(spec))
    size = {resource.RLIMIT_FSIZE: most_mb << 20} if most_mb else {}
    return {**given, **size, **world.bounds}


def _stay_outside(spec: ReplicaSpec, world: World, ends: Ends) -> None:
    os.setsid()
    sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
    inside.take_streams(ends.out, ends.error)
    inside.set_limits(_limits(spec, world))
    os.umask(0o022)
    os.chdir(spec.release)
    if spec.is_server and not world.user:
        inside.give_up_rights(spec.uid)


def _start(spec: ReplicaSpec, world: World, ends: Ends) -> None:
    if is_first(spec):
        _become_program(spec, world, ends)
    # Our memory still holds what the shim knows, its token among it, and the app may be the same user.
    sys_.set_dumpable(False)
    app = os.fork()
    if app == 0:
        os.setpgid(0, 0)
        _become_program(spec, world, ends)
    with contextlib.suppress(OSError):
        os.setpgid(app, app)  # Whichever of us is first: a signal may have to be passed on already.
    inside.take_streams(0, 0)
    inside.close_all_but(ends.channel.fileno())
    ends.channel.send(STATUS.pack(_watch_over(app)))
    os._exit(0)


def _become_program(spec: ReplicaSpec, world: World, ends: Ends) -> NoReturn:
    sys_.set_pdeathsig(signal.SIGKILL)
    inside.close_all_but(ends.failure)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    _execute(spec, world.env)


def _execute(spec: ReplicaSpec, env: Mapping[str, str]) -> NoReturn:
    program = inside.find_program(spec.argv, env)
    try:
        os.execve(program, spec.argv, env)  # noqa: S606 - no shell
    except FileNotFoundError:
        if not spec.image or ("/" in program and os.path.exists(program)):
            raise
        raise ValueError(f"there is no program {spec.argv[0]!r} in the image") from None


def _watch_over(app: int) -> int:
    """Pass signals on to the app and all that it started, and reap; return the app's wait status."""
    while True:
        number = signal.sigwait({signal.SIGCHLD, *_PASSED_ON})
        if number != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(app, number)
            continue
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == app:
                    return ended[1]
