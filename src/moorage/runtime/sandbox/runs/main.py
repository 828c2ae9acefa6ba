"""`python -m moorage.runtime.sandbox.runs.main`: run one program in a sandbox, as JSON on standard input says.

The description comes on standard input; what the program prints goes to our standard output, both streams in order; our
exit code is the program's. With `--frames` the streams are told apart, the last frame says how it ended, and the
program ends with whoever holds our standard input. Only the folder `work`, and those of `writable`, can be written to.
Builds use this; functions have cells.
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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from moorage.runtime.sandbox import inside, root
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.cgroups import groups as cgroups
from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.sandbox.network.policy import NetworkPolicy
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
    FramedOut,
    Out,
    PlainOut,
    Relay,
    Watch,
    leave,
)
from moorage.runtime.sandbox.usage import process_tree

if TYPE_CHECKING:
    from moorage.core.kit.children import Child

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

CLEAR_UP_S = 5.0
PAUSE_S = 0.001
FRAMED = "--frames"


async def run(job: Job, on_output: OnOutput | None = None) -> Finished:
    """Run a job in a process of its own, and return what came of it. A caller that is cancelled or dies ends it.

    With `on_output`, what is printed is handed over as it comes, told apart by stream, and `output` stays empty.
    """
    from moorage.core.kit import children  # The process that runs the job does without asyncio, and so starts sooner.

    argv = [sys.executable, "-m", "moorage.runtime.sandbox.runs.main", FRAMED]
    process = await children.start(argv, env=network.environment(), stdin=subprocess.PIPE, stderr=None)
    kept: list[bytes] = []
    result: dict[str, Any] | None = None
    try:
        await _tell(process, replace(job, is_apart=on_output is not None))
        while (frame := await _next_frame(process)) is not None:
            stream, data = frame
            if stream == RESULT:
                result = json.loads(data)
            elif on_output is not None:
                on_output("stderr" if stream == STDERR else "stdout", data)
            else:
                kept.append(data)
        await process.wait()
    finally:
        await _end(process)
    output = b"".join(kept).decode("utf-8", "replace")
    if result is None:
        return Finished(NO_SANDBOX, output, "its sandbox was ended from outside", is_told=True)
    return Finished(result["code"], output, result["why"], is_told=True)


async def _tell(process: Child, job: Job) -> None:
    """Describe the job. What it is told by stays open: its end is how the runner notices that we have gone."""
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
    """End a runner that still runs. It clears up after itself, unless that takes too long."""
    import asyncio

    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), CLEAR_UP_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def main(argv: list[str]) -> None:
    is_framed = FRAMED in argv
    # Killed at once, we could not clear up; but only a caller who talks in frames is sure to wait for that.
    sys_.set_pdeathsig(signal.SIGTERM if is_framed else signal.SIGKILL)
    signal.signal(signal.SIGTERM, lambda *_: leave())
    told = sys.stdin.buffer.readline()
    if not told:
        sys.exit(NO_SANDBOX)
    job, out = Job(**json.loads(told)), FramedOut() if is_framed else PlainOut()
    try:
        ended = _run_in_tree(job, out, lifeline=0 if is_framed else None)
    except BrokenPipeError:
        sys.exit(NO_SANDBOX)  # Nobody listens any more.
    except OSError as error:
        out.write(STDERR, f"the sandbox could not be made: {error}\n".encode(errors="replace"))
        ended = Ended(NO_SANDBOX, by_us=True)
    why = job.reason(ended.code) if ended.by_us else None
    out.write(RESULT, json.dumps({"code": ended.code, "why": why}).encode())
    sys.exit(ended.code)


@dataclass(frozen=True)
class Ended:
    code: int
    by_us: bool  # The code says which limit it was; else it is the program's own.


def _run_in_tree(job: Job, out: Out, lifeline: int | None) -> Ended:
    run_groups.sweep()
    # Until everything has its place on the stack, a signal to end waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    with contextlib.ExitStack() as stack:
        tree = Path(tempfile.mkdtemp(prefix=f"{run_groups.TREE}{os.getpid()}-"))
        stack.callback(_remove_tree, tree)
        return _supervise(job, tree, out, lifeline, stack)


def _remove_tree(tree: Path) -> None:
    with contextlib.suppress(OSError):
        sys_.umount2(str(tree), sys_.MNT_DETACH)
    with contextlib.suppress(OSError):
        tree.rmdir()


def _supervise(job: Job, tree: Path, out: Out, lifeline: int | None, stack: contextlib.ExitStack) -> Ended:
    """Start the program, pass its output on, and end it when it goes over its limits."""
    is_root = os.getuid() == 0
    channel = None
    if job.network and job.is_boxed:
        netd, channel = network.start_supervisor(is_quiet=True)
        stack.callback(_kill, netd)
    if job.is_boxed:
        root.take_own_mounts()
    sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
    stack.callback(_end_orphans)
    groups = run_groups.find()
    group = groups.create(run_groups.name())
    stack.callback(_remove_group, group)
    group.limit(memory_mb=job.memory_mb, pids=job.pids, weight=job.weight)
    run_groups.give_disk_weight(group, job.weight)
    if job.is_boxed:
        root.build(tree, binds={**job.binds, **job.writable}, files={})
    started = _start(group, job, tree, channel, groups.controllers, is_root=is_root)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    try:
        return _watch(job, started, group, out, lifeline, counts_memory="memory" not in groups.controllers)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # What follows clears up, and is not to be left halfway.


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _remove_group(group: cgroups.Group) -> None:
    with contextlib.suppress(OSError):
        group.kill()
        group.remove()


def _end_orphans() -> None:
    """Kill the processes that the program left behind.

    They are children of this subreaper, whatever session they are in. PID 1 of a sandbox can be one of them: the parent
    death signal that should end it with its parent can be cleared by the program.
    """
    deadline = time.monotonic() + CLEAR_UP_S
    while time.monotonic() < deadline:
        orphans = _living(process_tree.with_descendants(process_tree.children(os.getpid())))
        if not orphans:
            return
        files.send(orphans, signal.SIGKILL)
        time.sleep(PAUSE_S)


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
class Started:
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
) -> Started:
    """Start the program in its group."""
    up, down = socket.socketpair()
    (out, out_end), (failure, failure_end), (waiting, going) = os.pipe(), os.pipe(), os.pipe()
    error, error_end = os.pipe() if job.is_apart else (out, out_end)
    child = os.fork()
    if child == 0:
        os.close(going)
        ends = run_child.Ends(out_end, error_end, waiting, failure_end, down)
        bounds = _bounds(job, controllers, is_root=is_root)
        run_child.become(job, tree, ends, bounds, is_root=is_root, controllers=controllers)
    for descriptor in {out_end, error_end, failure_end, waiting}:
        os.close(descriptor)
    down.close()
    group.attach(child)
    os.close(going)  # Only now does it go on: everything it starts is inside its limits.
    if channel is not None:
        _pass_on_network(up, channel, job)
    return Started(child, {out: STDOUT, **({error: STDERR} if job.is_apart else {})}, failure)


def _pass_on_network(up: socket.socket, channel: socket.socket, job: Job) -> None:
    message, descriptors, _, _ = socket.recv_fds(up, 1, 3)
    if message and len(descriptors) == 3:
        policy = NetworkPolicy(allow=tuple(job.allow), block=tuple(job.block), egress=tuple(job.doors))
        network.hand_over(channel, 1, descriptors[0], descriptors[1], descriptors[2], policy)
        for descriptor in descriptors:
            os.close(descriptor)


def _watch(
    job: Job, started: Started, group: cgroups.Group, out: Out, lifeline: int | None, *, counts_memory: bool
) -> Ended:
    """See the program through. Return its exit code, or why it was ended."""
    watch = Watch(job, started.child, group, counts_memory=counts_memory)
    watch.start()
    relay = Relay(job, watch, started.pipes, out)
    relay.run(lifeline, started.child, _end_orphans)
    os.waitid(os.P_PID, started.child, os.WEXITED | os.WNOWAIT)
    watch.stop()
    _, status = os.waitpid(started.child, 0)
    code = os.waitstatus_to_exitcode(status)
    if said := os.read(started.failure, 4096):
        out.write(STDERR, said)
        return Ended(NO_SANDBOX, by_us=True)
    if watch.verdict is not None:
        return Ended(watch.verdict, by_us=True)
    if code != 0 and group.oom_kills():
        return Ended(OUT_OF_MEMORY, by_us=True)
    return Ended(code if code >= 0 else 128 - code, by_us=False)


if __name__ == "__main__":
    main(sys.argv[1:])
