"""Runs for threads: starts the runner of a job without an event loop, and reads its output."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import IO

from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.sandbox.runs.job import NO_SANDBOX, Finished, Job
from moorage.runtime.sandbox.runs.main import CLEANUP_TIMEOUT_S, FRAMED
from moorage.runtime.sandbox.runs.watch import HEAD, RESULT, STDERR

Take = Callable[[bytes], object]


@contextlib.contextmanager
def started(job: Job) -> Iterator[subprocess.Popen[bytes]]:
    """Start a job's runner; on exit, end the program and wait for the runner's cleanup.

    `terminate` of the process ends the program too, and may be called from another thread.
    """
    argv = [sys.executable, "-m", "moorage.runtime.sandbox.runs.main", FRAMED]
    inherited = () if job.stdin is None else (job.stdin,)
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=network.environment(), pass_fds=inherited
    ) as process:
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(asdict(replace(job, is_apart=True))).encode() + b"\n")
                process.stdin.flush()
            yield process
        finally:
            _end(process)


def read(process: subprocess.Popen[bytes], take: Take, take_error: Take) -> Finished:
    """Pass the program's streams on until it ends; return its result without output."""
    assert process.stdout is not None
    while (frame := _next_frame(process.stdout)) is not None:
        stream, data = frame
        if stream == RESULT:
            result = json.loads(data)
            return Finished(result["code"], "", result["why"], is_reported=True)
        (take_error if stream == STDERR else take)(data)
    return Finished(NO_SANDBOX, "", "its sandbox was ended from outside", is_reported=True)


def _next_frame(pipe: IO[bytes]) -> tuple[int, bytes] | None:
    head = pipe.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    stream, length = HEAD.unpack(head)
    data = pipe.read(length)
    return (stream, data) if len(data) == length else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a runner that still runs; kill it if its cleanup takes too long."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(CLEANUP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
