"""`python -m moorage.runtime.sandbox.runs.main`: run one program in a sandbox.

Standard input has the job as a line of JSON. Standard output gets both output streams of the program, in order, and the
exit code is the program's. With `--frames`, each piece of output is a frame with its stream, the last frame is the
result, and the program is killed when standard input closes. Only the folder `work` and those of `writable` are
writable. Builds use this; functions have their own sandboxes (`runtime/workers`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from moorage.core.kit.records import dataclass
from moorage.runtime.sandbox import inside, root
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.cgroups import groups as cgroups
from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.sandbox.network.policy import NetworkPolicy
from moorage.runtime.sandbox.rootfs import copies
from moorage.runtime.sandbox.runs import cgroups as run_groups
from moorage.runtime.sandbox.runs import child as run_child
from moorage.runtime.sandbox.runs.job import (
    NO_ROOM,
    NO_SANDBOX,
    OUT_OF_MEMORY,
    TIMED_OUT,
    TOO_MUCH_DISK,
    TOO_MUCH_OUTPUT,
    WORK,
    Finished,
    Job,
)
from moorage.runtime.sandbox.runs.watch import (
    HEAD,
    RESULT,
    STDERR,
    STDOUT,
    FramedWriter,
    LimitWatch,
    OutputRelay,
    OutputWriter,
    PlainWriter,
    terminate,
)
from moorage.runtime.sandbox.usage import process_tree

if TYPE_CHECKING:
    from moorage.core.kit.processes.children import Child

__all__ = [
    "NO_ROOM",
    "NO_SANDBOX",
    "OUT_OF_MEMORY",
    "TIMED_OUT",
    "TOO_MUCH_DISK",
    "TOO_MUCH_OUTPUT",
    "WORK",
    "Finished",
    "Job",
    "OnOutput",
    "run",
]

OnOutput = Callable[[Literal["stdout", "stderr"], bytes], None]

CLEANUP_TIMEOUT_S = 5.0
KILL_RETRY_INTERVAL_S = 0.001
FRAMED = "--frames"


async def run(job: Job, on_output: OnOutput | None = None) -> Finished:
    """Run a job in a runner process and return its result.

    The program is killed if this is cancelled or the calling process exits. With `on_output`, output is passed on piece
    by piece with its stream, and `output` of the result stays empty.
    """
    from moorage.core.kit.processes import children  # Imported here: the runner process starts faster without asyncio.

    argv = [sys.executable, "-m", "moorage.runtime.sandbox.runs.main", FRAMED]
    process = await children.start(argv, env=network.environment(), stdin=subprocess.PIPE, stderr=None)
    pieces: list[bytes] = []
    result: dict[str, Any] | None = None
    try:
        await _send_job(process, replace(job, is_apart=on_output is not None))
        while (frame := await _next_frame(process)) is not None:
            stream, data = frame
            if stream == RESULT:
                result = json.loads(data)
            elif on_output is not None:
                on_output("stderr" if stream == STDERR else "stdout", data)
            else:
                pieces.append(data)
        await process.wait()
    finally:
        await _end(process)
    output = b"".join(pieces).decode("utf-8", "replace")
    if result is None:
        return Finished(NO_SANDBOX, output, "its sandbox was ended from outside", is_reported=True)
    return Finished(result["code"], output, result["why"], is_reported=True)


async def _send_job(process: Child, job: Job) -> None:
    """Send the job. The pipe stays open: the runner ends when it closes."""
    assert process.stdin is not None
    process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
    with contextlib.suppress(ConnectionError):
        await process.stdin.drain()


async def _next_frame(process: Child) -> tuple[int, bytes] | None:
    from asyncio import IncompleteReadError

    assert process.stdout is not None
    try:
        stream, length = HEAD.unpack(await process.stdout.readexactly(HEAD.size))
        return stream, await process.stdout.readexactly(length)
    except IncompleteReadError:
        return None


async def _end(process: Child) -> None:
    """Terminate a runner that still runs; kill it if its cleanup takes too long."""
    import asyncio

    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), CLEANUP_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def main(argv: list[str]) -> None:
    is_framed = FRAMED in argv
    # SIGTERM allows a cleanup, which only callers with frames wait for.
    sys_.set_pdeathsig(signal.SIGTERM if is_framed else signal.SIGKILL)
    signal.signal(signal.SIGTERM, lambda *_: terminate())
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(NO_SANDBOX)
    job, out = Job.read(json.loads(line)), FramedWriter() if is_framed else PlainWriter()
    try:
        result = _run_in_tree(job, out, lifeline=0 if is_framed else None)
    except BrokenPipeError:
        sys.exit(NO_SANDBOX)  # The caller has exited.
    except OSError as error:
        out.write(STDERR, f"the sandbox could not be made: {error}\n".encode(errors="replace"))
        result = ProgramExit(NO_SANDBOX, by_runner=True)
    why = job.reason(result.code) if result.by_runner else None
    out.write(RESULT, json.dumps({"code": result.code, "why": why}).encode())
    sys.exit(result.code)


@dataclass(frozen=True)
class ProgramExit:
    code: int
    by_runner: bool  # The code is one of REASONS; otherwise it is the program's own exit code.


def _run_in_tree(job: Job, out: OutputWriter, lifeline: int | None) -> ProgramExit:
    run_groups.sweep()
    # SIGTERM stays blocked until every cleanup is registered on the stack.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    with contextlib.ExitStack() as stack:
        tree = Path(tempfile.mkdtemp(prefix=f"{run_groups.TREE}{os.getpid()}-"))
        stack.callback(_remove_tree, tree)
        if job.root is not None and job.root.upper:
            stack.callback(copies.restore_changes, job.root.upper)
        return _supervise(job, tree, out, lifeline, stack)


def _remove_tree(tree: Path) -> None:
    with contextlib.suppress(OSError):
        sys_.umount2(str(tree), sys_.MNT_DETACH)
    with contextlib.suppress(OSError):
        tree.rmdir()


def _supervise(
    job: Job, tree: Path, out: OutputWriter, lifeline: int | None, stack: contextlib.ExitStack
) -> ProgramExit:
    """Start the program, relay its output, and kill it when it exceeds its limits."""
    is_root = os.getuid() == 0
    channel = None
    if job.network and job.is_boxed:
        supervisor, channel = network.start_supervisor(is_quiet=True)
        stack.callback(_kill, supervisor)
    if job.is_boxed:
        root.take_own_mounts()
    sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
    stack.callback(_kill_orphans)
    groups = run_groups.find()
    group = groups.create(run_groups.name())
    stack.callback(_remove_group, group)
    group.limit(memory_mb=job.memory_mb, pids=job.pids, weight=job.weight)
    run_groups.give_disk_weight(group, job.weight)
    if job.is_boxed and job.root is None:  # The root of an image is mounted by the child, in its PID namespace.
        files = root.account_files("build", job.uid if is_root else 0)
        root.build(tree, binds={**job.binds, **job.writable}, files=files)
    program = _start(group, job, tree, channel, groups.controllers, is_root=is_root)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    try:
        return _wait(job, program, group, out, lifeline, polls_memory="memory" not in groups.controllers)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # The cleanup that follows must not be interrupted.


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _remove_group(group: cgroups.Group) -> None:
    with contextlib.suppress(OSError):
        group.kill()
        group.remove()


def _kill_orphans() -> None:
    """Kill the processes that the program left behind.

    They are children of this subreaper, whatever session they are in. PID 1 of a sandbox can be one of them: the parent
    death signal that should end it with its parent can be cleared by the program.
    """
    deadline = time.monotonic() + CLEANUP_TIMEOUT_S
    while time.monotonic() < deadline:
        orphans = _living(process_tree.with_descendants(process_tree.children(os.getpid())))
        if not orphans:
            return
        files.send(orphans, signal.SIGKILL)
        time.sleep(KILL_RETRY_INTERVAL_S)


def _living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if process_tree.find_stat(pid)]


def _bounds(job: Job, controllers: frozenset[str], *, is_root: bool) -> dict[int, int]:
    return inside.bounds(
        controllers,
        memory_mb=job.memory_mb,
        pids=job.pids,
        is_own_user=job.uid != 0,
        is_root=is_root,
        is_boxed=job.is_boxed,
    )


@dataclass(frozen=True)
class Program:
    child: int
    pipes: dict[int, int]  # pipe -> stream
    failure: int


def _start(
    group: cgroups.Group,
    job: Job,
    tree: Path,
    channel: socket.socket | None,
    controllers: frozenset[str],
    *,
    is_root: bool,
) -> Program:
    """Start the program in its cgroup."""
    ours, theirs = socket.socketpair()
    (out, out_end), (failure, failure_end), (go_ahead, go_ahead_end) = os.pipe(), os.pipe(), os.pipe()
    error, error_end = os.pipe() if job.is_apart else (out, out_end)
    child = os.fork()
    if child == 0:
        os.close(go_ahead_end)
        pipes = run_child.ChildPipes(out_end, error_end, go_ahead, failure_end, theirs)
        bounds = _bounds(job, controllers, is_root=is_root)
        run_child.become(job, tree, pipes, bounds, is_root=is_root, controllers=controllers)
    for descriptor in {out_end, error_end, failure_end, go_ahead}:
        os.close(descriptor)
    if job.stdin is not None:
        os.close(job.stdin)  # The writer of a pipe gets an error once the program has exited.
    theirs.close()
    group.attach(child)
    os.close(go_ahead_end)  # The child continues only now, so all its processes are in the cgroup.
    if channel is not None:
        _forward_descriptors(ours, channel, job)
    return Program(child, {out: STDOUT, **({error: STDERR} if job.is_apart else {})}, failure)


def _forward_descriptors(child_socket: socket.socket, channel: socket.socket, job: Job) -> None:
    """Send the sandbox's network descriptors from the child to the network supervisor."""
    message, descriptors, _, _ = socket.recv_fds(child_socket, 1, 3)
    if message and len(descriptors) == 3:
        policy = NetworkPolicy(allow=tuple(job.allow), block=tuple(job.block), egress=tuple(job.doors))
        network.hand_over(channel, 1, descriptors[0], descriptors[1], descriptors[2], policy)
        for descriptor in descriptors:
            os.close(descriptor)


def _wait(
    job: Job, program: Program, group: cgroups.Group, out: OutputWriter, lifeline: int | None, *, polls_memory: bool
) -> ProgramExit:
    """Wait for the program; return its exit code, or that of an exceeded limit."""
    watch = LimitWatch(job, program.child, group, polls_memory=polls_memory)
    watch.start()
    relay = OutputRelay(job, watch, program.pipes, out)
    relay.run(lifeline, program.child, _kill_orphans)
    os.waitid(os.P_PID, program.child, os.WEXITED | os.WNOWAIT)
    watch.stop()
    _, status = os.waitpid(program.child, 0)
    code = os.waitstatus_to_exitcode(status)
    if failure := os.read(program.failure, 4096):
        out.write(STDERR, failure)
        return ProgramExit(NO_SANDBOX, by_runner=True)
    if watch.verdict is not None:
        return ProgramExit(watch.verdict, by_runner=True)
    if code != 0 and group.oom_kills():
        return ProgramExit(OUT_OF_MEMORY, by_runner=True)
    return ProgramExit(code if code >= 0 else 128 - code, by_runner=False)


if __name__ == "__main__":
    main(sys.argv[1:])
