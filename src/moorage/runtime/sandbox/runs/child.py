"""Child side of a run, between the runner's `fork` and `execve`."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import stat
from pathlib import Path

from moorage.core.kit.records import dataclass
from moorage.runtime.sandbox import inside, root, seccomp
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.sandbox.rootfs import writable
from moorage.runtime.sandbox.rootfs.users import Identity
from moorage.runtime.sandbox.runs.job import NO_SANDBOX, WORK, Job

NICE = 10


@dataclass(frozen=True)
class ChildPipes:
    """The child's ends of the pipes and the socket to the runner."""

    out: int
    error: int
    go_ahead: int  # closed by the runner when the child is in its cgroup
    failure: int  # gets the reason if the start fails; closed by `execve` if it succeeds
    network: socket.socket


def become(
    job: Job, tree: Path, pipes: ChildPipes, bounds: dict[int, int], *, is_root: bool, controllers: frozenset[str]
) -> None:
    """Turn this fork into the program; never returns."""
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.read(pipes.go_ahead, 1)
        sys_.set_pdeathsig(signal.SIGKILL)
        if "cpu" not in controllers:
            os.nice(NICE)
        with contextlib.suppress(OSError):
            sys_.yield_disk()
        env = job.env
        if job.is_boxed:
            is_counted = "memory" in controllers
            home = _enter_sandbox(job, tree, pipes, bounds, is_root=is_root and job.uid != 0, is_counted=is_counted)
            env = {**({"HOME": home} if home else {}), **env}
        else:
            _prepare_without_sandbox(job, pipes, bounds)
        inside.close_all_but(pipes.failure)
        os.execve(inside.find_program(job.argv, env), job.argv, env)  # noqa: S606 - an argv list, no shell
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            os.write(pipes.failure, f"the sandbox could not be made: {error}\n".encode(errors="replace"))
    finally:
        os._exit(NO_SANDBOX)


def _enter_sandbox(
    job: Job, tree: Path, pipes: ChildPipes, bounds: dict[int, int], *, is_root: bool, is_counted: bool
) -> str:
    """Continue as process 1 of new namespaces; the parent exits with its code.

    Returns the home folder of the image's user, "" without an image.
    """
    stdin = _open_stdin(job.stdin)
    clones = {path: inside.clone_mount(folder) for path, folder in job.open_folders().items() if job.root is None}
    kinds = sys_.CLONE_NEWNS | sys_.CLONE_NEWPID | sys_.CLONE_NEWIPC | sys_.CLONE_NEWUTS | sys_.CLONE_NEWNET
    sys_.unshare(kinds)
    inner = os.fork()
    if inner:
        inside.close_all_but()  # The pipes must close with the program, not with this process.
        _, status = os.waitpid(inner, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    os.setsid()  # A signal to one's own process group reaches its members in other PID namespaces too.
    sys_.set_pdeathsig(signal.SIGKILL)
    identity = _mount(job, tree, clones)
    sockets = network.make_resolver_sockets() if job.network else ()
    uid = job.uid if is_root else None
    inside.take_streams(pipes.out, pipes.error, inside.stream_owner(identity, uid), stdin=stdin)
    has_single_id = identity is not None and identity.namespace is None
    inside.seal(
        pipes.network,
        b"n",
        sockets,
        limits=_limits(job, bounds),
        uid=uid,
        program=seccomp.build(notify=job.network, is_counted=is_counted, pretends_owners=has_single_id),
        identity=identity,
    )
    # A path may lead over /proc/self/fd to folders of the machine that descriptors of the runner refer to.
    inside.close_all_but(pipes.failure)
    os.chdir(f"{WORK}/{job.cwd}" if job.root is None else ".")  # `writable.enter` has entered that of an image as root.
    return identity.home if identity else ""


def _mount(job: Job, tree: Path, clones: dict[str, int]) -> Identity | None:
    """Enter the sandbox's root; return the program's user in an image."""
    if job.root is None:
        root.enter(str(tree))
        inside.mount_own("build", clones, f"size={job.tmp_mb}m", has_network=job.network)
        return None
    root.keep_mounts_private()
    folders = writable.HostFolders(job.binds, job.open_folders())
    return writable.enter(tree, job.root, folders, has_network=job.network, cwd=job.cwd or "/")


def _open_stdin(inherited: int | None) -> int:
    """Return the program's standard input.

    A file is opened on a read-only mount: the program may have its owner's rights, and open it again over /proc.
    """
    if inherited is None:
        return os.open("/dev/null", os.O_RDONLY)
    if not stat.S_ISREG(os.fstat(inherited).st_mode):
        return inherited
    path = os.readlink(f"/proc/self/fd/{inherited}")
    mount = inside.clone_mount(path, sys_.MOUNT_ATTR_RDONLY)
    try:
        if not os.path.sameopenfile(mount, inherited):
            raise OSError(f"{path} was replaced")
        return os.open(f"/proc/self/fd/{mount}", os.O_RDONLY)
    finally:
        os.close(mount)


def _prepare_without_sandbox(job: Job, pipes: ChildPipes, bounds: dict[int, int]) -> None:
    os.setsid()
    inside.take_streams(pipes.out, pipes.error, stdin=job.stdin)
    inside.set_limits(_limits(job, bounds))
    os.umask(0o022)
    os.chdir(Path(job.work, job.cwd))


def _limits(job: Job, bounds: dict[int, int]) -> dict[int, int]:
    cores = os.cpu_count() or 1
    file_bytes, own_bytes = job.file_mb << 20, resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 4096,
        resource.RLIMIT_FSIZE: file_bytes if own_bytes == resource.RLIM_INFINITY else min(file_bytes, own_bytes),
        resource.RLIMIT_CPU: int(job.timeout_s * cores) + 1,  # All threads of a process count together.
        **bounds,
    }
