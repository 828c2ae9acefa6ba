"""Drives a real worker process over a socketpair, like the edge."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage.runtime.workers import runtimes

WORKERS = Path(runtimes.__file__).parent
WAIT_S = 60.0
ACTIVATION = "0123456789abcdef0123456789abcdef"
LANGUAGES = ("python", "nodejs")
MAIN = {"python": "main.py", "nodejs": "index.js"}
ECHO = {"python": "def main(params):\n    return params\n", "nodejs": "exports.main = (params) => params;\n"}
DONE, FAILED, ENDED = 0, 1, 2


class Gone(Exception):
    """The worker closed its socket."""


@dataclass(frozen=True)
class Line:
    stream: str
    at_ms: int
    text: str


@dataclass(frozen=True)
class Frame:
    kind: int
    content: bytes


@dataclass(frozen=True)
class Loaded:
    ok: bool
    load_us: int
    logs: list[Line]
    message: str


@dataclass(frozen=True)
class Reply:
    id: int
    outcome: int
    status: int
    kind: int
    run_us: int
    headers: list[list[str]]
    logs: list[Line]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def printed(self) -> list[tuple[str, str]]:
        return [(line.stream, line.text) for line in self.logs]

    def said(self, stream: str) -> str:
        return "".join(line.text for line in self.logs if line.stream == stream)


@dataclass(frozen=True)
class Late:
    activation: str
    logs: list[Line]


def lines_of(block: bytes) -> list[Line]:
    lines, at = [], 0
    while at < len(block):
        stream, size = block[at], int.from_bytes(block[at + 9 : at + 13], "little")
        text = block[at + 13 : at + 13 + size].decode()
        at_ms = int.from_bytes(block[at + 1 : at + 9], "little")
        # Lines of the same millisecond share an entry.
        lines += [Line(("", "stdout", "stderr")[stream], at_ms, line) for line in text.splitlines(keepends=True)]
        at += 13 + size
    assert at == len(block)
    return lines


def parse(frame: Frame) -> Loaded | Reply | Late:
    def number(at: int, size: int) -> int:
        return int.from_bytes(frame.content[at : at + size], "little")

    if frame.kind == 17:
        logs = frame.content[9 : 9 + number(5, 4)]
        return Loaded(bool(number(0, 1)), number(1, 4), lines_of(logs), frame.content[9 + len(logs) :].decode())
    if frame.kind == 19:
        return Late(frame.content[:32].decode(), lines_of(frame.content[32:]))
    assert frame.kind == 18
    head_end = 20 + number(12, 4)
    log_end = head_end + number(16, 4)
    head, logs = frame.content[20:head_end], frame.content[head_end:log_end]
    fixed = (number(0, 4), number(4, 1), number(5, 2), number(7, 1), number(8, 4))
    return Reply(*fixed, json.loads(head) if head else [], lines_of(logs), frame.content[log_end:])


def framed(kind: int, content: bytes) -> bytes:
    return (len(content) + 1).to_bytes(4, "little") + bytes([kind]) + content


def load_frame(main: str, env: dict[str, str] | None = None, **changed: Any) -> bytes:
    given = {
        "main": main,
        "env": list((env or {}).items()),
        "api_host": "http://api.test",
        "namespace": "org-12",
        "action": "/org-12/default/hello",
        "version": "3",
        "log_limit": 10485760,
        "result_limit": 6291456,
    }
    return framed(1, json.dumps({**given, **changed}).encode())


def call_frame(
    params: Any, *, ident: int = 1, web: bool = False, activation: str = ACTIVATION, deadline_ms: int | None = None
) -> bytes:
    deadline = str(deadline_ms or int(time.time() * 1000) + 60_000).encode()
    assert (len(deadline), len(activation)) == (13, 32)
    head = ident.to_bytes(4, "little") + bytes([web]) + activation.encode() + deadline
    return framed(2, head + json.dumps(params).encode())


def output_file(name: str) -> int:
    """Return the descriptor of an append-only memory file, as for a sandbox's output."""
    descriptor = os.memfd_create(name)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
    return descriptor


def argv_of(language: str, code: Path, executable: Path | None = None) -> list[str]:
    chosen = executable or runtimes.installed()[runtimes.resolve(language) or ""].executable
    if language == "python":
        return [str(chosen), "-I", "-S", str(WORKERS / "python" / "worker.py"), str(code)]
    return [str(chosen), str(WORKERS / "node_worker.js"), str(code)]


@dataclass
class Worker:
    process: subprocess.Popen[bytes]
    channel: socket.socket
    _read: bytearray = field(default_factory=bytearray)

    def send(self, data: bytes) -> None:
        self.channel.sendall(data)

    def next_frame(self) -> Frame:
        while True:
            size = 4 + int.from_bytes(self._read[:4], "little") if len(self._read) >= 4 else 5
            if len(self._read) >= size:
                frame = Frame(self._read[4], bytes(self._read[5:size]))
                del self._read[:size]
                return frame
            ready, _, _ = select.select([self.channel], [], [], WAIT_S)
            assert ready, "the worker did not answer"
            got = self.channel.recv(1 << 20)
            if not got:
                raise Gone
            self._read += got

    def next_reply(self) -> Reply:
        parsed = parse(self.next_frame())
        assert isinstance(parsed, Reply)
        return parsed

    def next_late(self) -> Late:
        parsed = parse(self.next_frame())
        assert isinstance(parsed, Late)
        return parsed

    def load(self, main: str, env: dict[str, str] | None = None, **changed: Any) -> Loaded:
        self.send(load_frame(main, env, **changed))
        loaded = parse(self.next_frame())
        assert isinstance(loaded, Loaded)
        return loaded

    def call(self, params: Any = None, **given: Any) -> Reply:
        self.send(call_frame({} if params is None else params, **given))
        return self.next_reply()

    def ended(self) -> int:
        """Return the exit code, once the socket is closed and the process has ended."""
        with contextlib.suppress(Gone, ConnectionResetError):
            raise AssertionError(f"the worker sent another frame: {self.next_frame()}")
        return self.process.wait(WAIT_S)


@contextlib.contextmanager
def started(
    language: str,
    code: Path,
    executable: Path | None = None,
    env: dict[str, str] | None = None,
    early: bytes = b"",
) -> Iterator[Worker]:
    """Start a worker and wait until it is ready for LOAD, or for the frames after `early`."""
    ours, theirs = socket.socketpair()
    ours.sendall(early)
    outputs = [output_file("stdout"), output_file("stderr")]
    process = subprocess.Popen(
        argv_of(language, code, executable),
        stdin=subprocess.DEVNULL,
        stdout=outputs[0],
        stderr=outputs[1],
        env=env or {},
        pass_fds=(3,),
        preexec_fn=lambda: os.dup2(theirs.fileno(), 3, inheritable=True) and None,
    )
    theirs.close()
    worker = Worker(process, ours)
    try:
        ready = worker.next_frame()
        assert ready == Frame(16, b"")
        yield worker
    except Gone:
        crash = os.pread(outputs[1], 10000, 0).decode(errors="replace")
        raise AssertionError(f"the worker ended early ({process.wait()}): {crash}") from None
    finally:
        process.kill()
        process.wait()
        ours.close()
        for output in outputs:
            os.close(output)


def write_code(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@contextlib.contextmanager
def running(language: str, folder: Path, sources: dict[str, str], **load: Any) -> Iterator[Worker]:
    """Start a worker and load the code of its language."""
    with started(language, write_code(folder, {MAIN[language]: sources[language]})) as worker:
        loaded = worker.load(MAIN[language], **load)
        assert loaded.ok, loaded
        yield worker
