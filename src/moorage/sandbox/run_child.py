"""The process of a run that becomes the program: its own world around it, no rights left, then `execve`.

All of this runs between `fork` and `execve`.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from moorage.sandbox import network, root, seccomp
from moorage.sandbox import syscalls as sys_
from moorage.sandbox.run_job import NO_SANDBOX, WORK, Job

NICE = 10
TMP = "/tmp"  # noqa: S108
_HIDDEN = sys_.MS_NOSUID | sys_.MS_NODEV


@dataclass(frozen=True)
class Ends:
    """The child's ends of what leads to its runner."""

    out: int
    error: int
    waiting: int  # It goes on once this is closed: then it is inside its limits.
    failure: int  # Says that there is no program, and why; closed by `execve`.
    network: socket.socket


def become(job: Job, tree: Path, ends: Ends, bounds: dict[int, int], *, is_root: bool, is_nice: bool) -> None:
    """Turn this fork into the program; it never returns."""
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.read(ends.waiting, 1)
        sys_.set_pdeathsig(signal.SIGKILL)
        if is_nice:
            os.nice(NICE)
        with contextlib.suppress(OSError):
            sys_.yield_disk()
        if job.is_boxed:
            _enter_box(job, tree, ends, bounds, is_root=is_root and job.uid != 0)
        else:
            _stay_outside(job, ends, bounds)
        _close_all_but(ends.failure)
        os.execve(_found(job), job.argv, job.env)  # noqa: S606 - an argv list, no shell
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            os.write(ends.failure, f"the sandbox could not be made: {error}\n".encode(errors="replace"))
    finally:
        os._exit(NO_SANDBOX)


def _enter_box(job: Job, tree: Path, ends: Ends, bounds: dict[int, int], *, is_root: bool) -> None:
    """Go on as process 1 of a world of its own; the process between waits for it, and passes its end on."""
    clones = {inside: _clone(outside) for inside, outside in {WORK: job.work, **job.writable}.items()}
    kinds = sys_.CLONE_NEWNS | sys_.CLONE_NEWPID | sys_.CLONE_NEWIPC | sys_.CLONE_NEWUTS | sys_.CLONE_NEWNET
    sys_.unshare(kinds)
    inner = os.fork()
    if inner:
        _close_all_but(None)  # The pipes have to end with the program, not with us.
        _, status = os.waitpid(inner, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    os.setsid()  # A signal to one's own process group reaches its members in other namespaces too.
    _furnish(job, tree, clones)
    sockets = network.make_resolver_sockets() if job.network else None
    _take_streams(ends)
    _limit(job, bounds)
    _give_up_rights(job, is_root=is_root)
    listener = seccomp.install(seccomp.build(notify=job.network), listener=job.network)
    if listener is not None and sockets is not None:
        socket.send_fds(ends.network, [b"n"], [listener, sockets[0].fileno(), sockets[1].fileno()])
        os.close(listener)
    os.chdir(f"{WORK}/{job.cwd}")


def _stay_outside(job: Job, ends: Ends, bounds: dict[int, int]) -> None:
    os.setsid()
    _take_streams(ends)
    _limit(job, bounds)
    os.umask(0o022)
    os.chdir(Path(job.work, job.cwd))


def _found(job: Job) -> str:
    """Return the program's path, as a shell of its own PATH would find it."""
    program = job.argv[0]
    if "/" in program:
        return program
    places = (f"{place}/{program}" for place in job.env.get("PATH", os.defpath).split(":"))
    return next((place for place in places if os.access(place, os.X_OK)), program)


def _clone(folder: str) -> int:
    """Return a mount of a folder that can be put anywhere, taken while the host's paths are still in sight."""
    return sys_.open_tree(sys_.AT_FDCWD, folder, sys_.OPEN_TREE_CLONE | sys_.OPEN_TREE_CLOEXEC)


def _furnish(job: Job, tree: Path, clones: dict[str, int]) -> None:
    sys_.set_pdeathsig(signal.SIGKILL)
    root.enter(str(tree))
    root.mount_proc()
    if TMP not in clones:
        sys_.mount("tmpfs", TMP, "tmpfs", _HIDDEN, f"mode=1777,size={job.tmp_mb}m")
    attributes = sys_.MOUNT_ATTR_NOSUID | sys_.MOUNT_ATTR_NODEV
    for inside, clone in clones.items():
        sys_.mount_setattr(clone, "", sys_.AT_EMPTY_PATH, attributes, 0, sys_.MS_PRIVATE)
        sys_.move_mount(clone, "", sys_.AT_FDCWD, inside, sys_.MOVE_MOUNT_F_EMPTY_PATH)
    sys_.sethostname("build")
    if job.network:
        network.prepare_namespace()


def _take_streams(ends: Ends) -> None:
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(ends.out, 1)
    os.dup2(ends.error, 2)


def _limit(job: Job, bounds: dict[int, int]) -> None:
    cores = os.cpu_count() or 1
    given = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 4096,
        resource.RLIMIT_FSIZE: job.file_mb << 20,
        resource.RLIMIT_CPU: int(job.timeout_s * cores) + 1,  # The threads of a process count together.
        **bounds,
    }
    for limit, most in given.items():
        hard = resource.getrlimit(limit)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)  # Only root could raise it.
        resource.setrlimit(limit, (most, most))


def _give_up_rights(job: Job, *, is_root: bool) -> None:
    if is_root:
        os.setgroups([])
        os.setresgid(job.uid, job.uid, job.uid)
        sys_.drop_bounding_set()
        os.setresuid(job.uid, job.uid, job.uid)
    sys_.drop_capabilities(bounding=not is_root)
    sys_.no_new_privs()
    sys_.set_pdeathsig(signal.SIGKILL)  # The kernel forgets it when rights change.
    os.umask(0o022)


def _close_all_but(kept: int | None) -> None:
    """Close whatever is open beyond the three usual streams. What is kept ends with `execve` all the same."""
    if kept is None:
        os.closerange(3, 65536)
        return
    os.closerange(3, kept)
    os.closerange(kept + 1, 65536)
