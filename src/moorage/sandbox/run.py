"""Running one program of a user's in a sandbox, to its end: `python -m moorage.sandbox.run`, told what by JSON.

The description comes on standard input; what the program prints goes to our standard output, both streams in order; our
exit code is the program's. Only the folder `work` can be written to. Builds use this; functions have cells.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from moorage.sandbox import cgroup_files as files
from moorage.sandbox import cgroups, network, root, seccomp
from moorage.sandbox import syscalls as sys_
from moorage.sandbox.cgroups_none import NoCgroups
from moorage.sandbox.policy import NetworkPolicy

TIMED_OUT = 124
TOO_MUCH_OUTPUT = 125
NO_SANDBOX = 126
WORK = "/work"
CLEAR_UP_S = 5.0
COUNTS_BY_NAMESPACE = (5, 14)  # Before, a user's processes were counted together, whatever namespace they were in.


@dataclass(frozen=True)
class Job:
    """What is run, with what, and how much it may take."""

    argv: list[str]
    work: str  # the folder outside that is WORK inside
    env: dict[str, str] = field(default_factory=dict)
    binds: dict[str, str] = field(default_factory=dict)  # read-only: path inside -> path outside
    uid: int = 0  # the user it runs as, where we are root
    memory_mb: int = 1024
    pids: int = 256
    file_mb: int = 512
    tmp_mb: int = 256
    timeout_s: float = 300.0
    output_bytes: int = 4 * 2**20
    network: bool = True
    allow: list[str] = field(default_factory=list)
    block: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Finished:
    code: int
    output: str

    @property
    def why(self) -> str | None:
        """Say what the sandbox had to do, or None where the program ended by itself."""
        reasons = {TIMED_OUT: "it took too long", TOO_MUCH_OUTPUT: "it printed too much", NO_SANDBOX: "no sandbox"}
        return reasons.get(self.code)


async def run(job: Job) -> Finished:
    """Run a job in a process of its own, and return what came of it. A caller that is cancelled ends it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "moorage.sandbox.run",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=network.environment(),
        start_new_session=True,
    )
    try:
        output, _ = await process.communicate(json.dumps(asdict(job)).encode())
    finally:
        if process.returncode is None:
            await _end(process)
    assert process.returncode is not None
    return Finished(process.returncode, output.decode("utf-8", "replace"))


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a runner. It clears up after itself, unless that takes too long."""
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), CLEAR_UP_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def main() -> None:
    job = Job(**json.load(sys.stdin))
    sys_.set_pdeathsig(signal.SIGKILL)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    tree = Path(tempfile.mkdtemp(prefix="moorage-run-"))
    try:
        sys.exit(_supervise(job, tree))
    except OSError as error:
        print(f"the sandbox could not be made: {error}", flush=True)
        sys.exit(NO_SANDBOX)
    finally:
        with contextlib.suppress(OSError):
            sys_.umount2(str(tree), sys_.MNT_DETACH)
        shutil.rmtree(tree, ignore_errors=True)


def _supervise(job: Job, tree: Path) -> int:
    """Start the program, pass its output on, and end it when it goes over its time or its output."""
    is_root = os.getuid() == 0
    netd, channel = network.start_supervisor(is_quiet=True) if job.network else (None, None)
    root.take_own_mounts()
    groups = cgroups.find("run") if cgroups.look()[0] == "v1" else NoCgroups()
    bounds = _bounds(job, groups.controllers, is_root=is_root)
    group = groups.create(f"run-{os.getpid()}")
    try:
        group.limit(memory_mb=job.memory_mb, pids=job.pids, weight=50)
        root.build(tree, binds=job.binds, files={})
        return _run_in(group, job, tree, channel, bounds, is_root=is_root)
    finally:
        with contextlib.suppress(OSError):
            group.kill()
            group.remove()
        if netd is not None:
            netd.kill()


def _bounds(job: Job, controllers: frozenset[str], *, is_root: bool) -> dict[int, int]:
    """Return the limits of each process that stand in for those of the group, where it cannot have them."""
    bounds = {}
    if "memory" not in controllers:
        bounds[resource.RLIMIT_DATA] = job.memory_mb << 20
    if "pids" not in controllers and (job.uid if is_root else files.kernel() >= COUNTS_BY_NAMESPACE):
        bounds[resource.RLIMIT_NPROC] = job.pids
    return bounds


def _run_in(
    group: cgroups.Group,
    job: Job,
    tree: Path,
    channel: socket.socket | None,
    bounds: dict[int, int],
    *,
    is_root: bool,
) -> int:
    """Start the program in its group and see it through."""
    (up, down), (reading, writing) = socket.socketpair(), os.pipe()
    waiting, going = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(going)
        _become(job, tree, down, writing, waiting, bounds, is_root=is_root)
    for descriptor in (writing, waiting):
        os.close(descriptor)
    down.close()
    group.attach(child)
    os.close(going)  # Only now does it go on: everything it starts is inside its limits.
    if channel is not None:
        _pass_on_network(up, channel, job)
    return _watch(job, child, reading)


def _become(
    job: Job,
    tree: Path,
    down: socket.socket,
    writing: int,
    waiting: int,
    bounds: dict[int, int],
    *,
    is_root: bool,
) -> None:  # pragma: no cover - runs in the child
    """Turn this fork into the program, by way of one more fork that is process 1 of its own world."""
    try:
        os.read(waiting, 1)
        sys_.set_pdeathsig(signal.SIGKILL)
        work = sys_.open_tree(-100, job.work, sys_.OPEN_TREE_CLONE | sys_.OPEN_TREE_CLOEXEC)
        kinds = sys_.CLONE_NEWNS | sys_.CLONE_NEWPID | sys_.CLONE_NEWIPC | sys_.CLONE_NEWUTS | sys_.CLONE_NEWNET
        sys_.unshare(kinds)
        inner = os.fork()
        if inner:
            _, status = os.waitpid(inner, 0)
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
        os.setsid()  # A signal to one's own process group reaches its members in other namespaces too.
        _furnish(job, tree, work)
        sockets = network.make_resolver_sockets() if job.network else None
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        _limit(job, bounds)
        _give_up_rights(job, is_root=is_root)
        listener = seccomp.install(seccomp.build(notify=job.network), listener=job.network)
        if listener is not None and sockets is not None:
            socket.send_fds(down, [b"n"], [listener, sockets[0].fileno(), sockets[1].fileno()])
            os.close(listener)
        os.chdir(WORK)
        os.closerange(3, 1024)
        os.execve(job.argv[0], job.argv, job.env)  # noqa: S606 - an argv list, no shell
    except OSError as error:
        os.write(2, f"the sandbox could not be made: {error}\n".encode())
    finally:
        os._exit(NO_SANDBOX)


def _furnish(job: Job, tree: Path, work: int) -> None:
    sys_.set_pdeathsig(signal.SIGKILL)
    root.enter(str(tree))
    hidden = sys_.MS_NOSUID | sys_.MS_NODEV
    root.mount_proc()
    sys_.mount("tmpfs", "/tmp", "tmpfs", hidden, f"mode=1777,size={job.tmp_mb}m")  # noqa: S108
    sys_.mount_setattr(work, "", sys_.AT_EMPTY_PATH, sys_.MOUNT_ATTR_NOSUID | sys_.MOUNT_ATTR_NODEV, 0, sys_.MS_PRIVATE)
    sys_.move_mount(work, "", -100, WORK, sys_.MOVE_MOUNT_F_EMPTY_PATH)
    sys_.sethostname("build")
    if job.network:
        network.prepare_namespace()


def _limit(job: Job, bounds: dict[int, int]) -> None:
    given = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 4096,
        resource.RLIMIT_FSIZE: job.file_mb << 20,
        resource.RLIMIT_CPU: int(job.timeout_s) + 1,
        **bounds,
    }
    for limit, most in given.items():
        hard = resource.getrlimit(limit)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)  # Only root could raise it.
        resource.setrlimit(limit, (most, most))


def _give_up_rights(job: Job, *, is_root: bool) -> None:
    if is_root and job.uid:
        os.setgroups([])
        os.setresgid(job.uid, job.uid, job.uid)
        sys_.drop_bounding_set()
        os.setresuid(job.uid, job.uid, job.uid)
    sys_.drop_capabilities(bounding=not (is_root and job.uid))
    sys_.no_new_privs()
    sys_.set_pdeathsig(signal.SIGKILL)  # The kernel forgets it when rights change.
    os.umask(0o022)


def _pass_on_network(up: socket.socket, channel: socket.socket, job: Job) -> None:
    message, descriptors, _, _ = socket.recv_fds(up, 1, 3)
    if message and len(descriptors) == 3:
        policy = NetworkPolicy(allow=tuple(job.allow), block=tuple(job.block))
        network.hand_over(channel, 1, descriptors[0], descriptors[1], descriptors[2], policy)
        for descriptor in descriptors:
            os.close(descriptor)


def _watch(job: Job, child: int, reading: int) -> int:
    """Copy the program's output to ours until it ends. Return its exit code, or why it was ended."""
    left = job.output_bytes
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, job.timeout_s)
    is_cut = False
    while chunk := os.read(reading, 65536):
        if len(chunk) > left:
            is_cut = True
            os.kill(child, signal.SIGKILL)
            break
        left -= len(chunk)
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    _, status = os.waitpid(child, 0)
    is_late = signal.setitimer(signal.ITIMER_REAL, 0)[0] == 0.0
    code = os.waitstatus_to_exitcode(status)
    if is_cut:
        return TOO_MUCH_OUTPUT
    if code < 0:
        return TIMED_OUT if is_late else 128 - code
    return code


if __name__ == "__main__":
    main()
