"""A running `moorage functions dev`."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path

from tests.command import environment
from tests.e2e.functions_support import Answer, read_answer, wait_until

MAIN = {"nodejs": "index.js", "python": "main.py"}
LANGUAGES = tuple(MAIN)
WAIT_S = 60.0


class Dev:
    """The server of one folder; its standard output and its notes are one text."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = 0

    def _read(self) -> None:
        assert self.process.stdout is not None
        self._lines.extend(iter(self.process.stdout.readline, ""))

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def wait_for(self, text: str, times: int = 1) -> None:
        with contextlib.suppress(AssertionError):
            wait_until(lambda: self.output.count(text) >= times, WAIT_S)
        assert self.output.count(text) >= times, self.output

    def start(self) -> None:
        self.wait_for("Ctrl-C ends")
        match = re.search(r"http://localhost:(\d+)", self.output)
        assert match is not None
        self.port = int(match[1])

    def send(
        self, method: str, path: str, body: bytes | str | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return send(self.port, method, path, body, headers)

    def text(self, path: str = "/") -> str:
        return self.send("GET", path).body.decode()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(WAIT_S)


def send(
    port: int, method: str, path: str, body: bytes | str | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    with contextlib.closing(connection):
        connection.request(method, path, body, dict(headers or {}))
        return read_answer(connection.getresponse())


@contextlib.contextmanager
def dev(folder: Path, *options: str, **env: str) -> Iterator[Dev]:
    """Serve a folder until the block ends."""
    command = [sys.executable, "-m", "moorage.cli.main", "functions", "dev", str(folder), "--port", "0", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment() | env
    )
    server = Dev(process)
    try:
        server.start()
        yield server
    finally:
        process.kill()
        process.wait()


def save(path: Path, text: str) -> None:
    """Replace a file as editors do: a new file with its name."""
    new = path.with_name(f".{path.name}.tmp")
    new.write_text(text)
    new.replace(path)


def folder_of(parent: Path, language: str, code: str, name: str = "hello") -> Path:
    folder = parent / name
    folder.mkdir()
    (folder / MAIN[language]).write_text(code)
    return folder
