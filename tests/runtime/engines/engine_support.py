"""A real local engine in its own process, and real apps: as root, and as an unprivileged user if the tests are root.

Keys are never used twice, so that tests can share an engine.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.runtime.workers.invoker_support import give, in_reach, path_of, python_of, until, user_of

DRIVER = Path(__file__).with_name("engine_driver.py")
APP_UID = 230_001
WAIT_S = 60.0
_numbers = itertools.count(1)

# Serves HTTP and runs the code that a test sends; the value of `answer` is the response.
LAB = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.tell(f"hello from {os.getpid()}")

    def do_POST(self):
        scope = {}
        exec(self.rfile.read(int(self.headers["Content-Length"])), scope)
        self.tell(scope.get("answer"))

    def tell(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
"""
PRELUDE = """
import ctypes, errno, json, os, signal, socket, subprocess, sys, threading, time
PORT = int(os.environ["PORT"])

def attempt(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, "timed out")
    return "done"

def write(path, size=1):
    with open(path, "wb") as file:
        for start in range(0, size, 1 << 20):
            file.write(b"x" * min(1 << 20, size - start))

def connected(address, port):
    with socket.create_connection((address, port), 5):
        pass
"""


@dataclass
class Replica:
    """A replica of a test."""

    engine: Engine
    spec: dict[str, Any]
    started: dict[str, Any]

    @property
    def key(self) -> str:
        return str(self.spec["key"])

    @property
    def port(self) -> int:
        return int(self.started["port"])

    @property
    def shim(self) -> int:
        return int(self.started["pid"])

    def look(self) -> Any:
        return self.engine.ask("look", key=self.key)

    def state(self) -> Any:
        """Return the engine's last known state, None if it has none."""
        return self.engine.ask("states").get(self.key)

    def until(self, **wanted: Any) -> Any:
        """Wait until its state has these values, and return it."""
        return until(lambda: _matching(self.state(), wanted), f"{self.key} with {wanted}")

    def stop(self, grace_s: float = 5.0) -> None:
        self.engine.ask("stop", key=self.key, grace_s=grace_s)

    def get(self, path: str = "/") -> str:
        client = HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        with contextlib.closing(client):
            client.request("GET", path)
            return client.getresponse().read().decode()

    def run(self, code: str) -> Any:
        """Run code inside the lab; return its `answer`."""
        client = HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        with contextlib.closing(client):
            client.request("POST", "/", PRELUDE + textwrap.dedent(code))
            return json.loads(client.getresponse().read())

    def log(self) -> list[str]:
        """Return the lines of its log without their times: stream and text."""
        files = sorted(Path(self.spec["log"]).glob(f"*-{self.key}.log"))
        lines = [line for file in files for line in file.read_text().splitlines()]
        return [f"{stream} {text}" for _, stream, _, text in (line.split(" ", 3) for line in lines)]

    @property
    def folder(self) -> Path:
        return self.engine.home / "run" / "shims" / self.key


def _matching(state: Any, wanted: dict[str, Any]) -> Any:
    return state if state and all(state[name] == value for name, value in wanted.items()) else None


@dataclass
class Engine:
    """The engine of one control process."""

    mode: str
    home: Path
    process: subprocess.Popen[str] | None = None
    replicas: list[Replica] = field(default_factory=list)

    def ask(self, do: str, **what: Any) -> Any:
        process = self.process or self.launch()
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps({"do": do, **what}) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def launch(self) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [python_of(self.mode), str(in_reach(DRIVER.parent) / DRIVER.name), str(self.home / "run")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"], "SECRET": "of the platform", **path_of(self.mode)},
            cwd="/",
            **user_of(self.mode),
        )
        return self.process

    def end(self, *, kill: bool = False) -> None:
        """End the control process; its replicas continue to run."""
        if self.process is not None:
            assert self.process.stdin
            assert self.process.stdout
            if kill:
                self.process.kill()
            self.process.stdin.close()
            self.process.wait(WAIT_S)
            self.process.stdout.close()
            self.process = None

    def make(self, files: dict[str, str], argv: list[str], **changed: Any) -> dict[str, Any]:
        """Write an app's files and return the spec of a replica."""
        key = f"r{next(_numbers)}"
        release = self.home / "apps" / key
        for name, text in files.items():
            (release / name).parent.mkdir(parents=True, exist_ok=True)
            (release / name).write_text(textwrap.dedent(text))
        release.mkdir(parents=True, exist_ok=True)
        usual = {"env": {"PATH": "/usr/bin:/bin"}, "binds": self._binds(), "kind": "app"}
        limits = {"memory_mb": 256, "pids": 64, "uid": APP_UID if self.mode == "root" else 0}
        told = {"key": key, "token": f"token-of-{key}", "release": str(release), "argv": argv}
        return {**usual, **limits, **told, "log": str(self.home / "logs"), **changed}

    def volume(self) -> str:
        """Make a folder that an app can write to."""
        folder = self.home / "volumes" / str(next(_numbers))
        folder.mkdir(parents=True)
        give(folder, self.mode)
        if self.mode == "root":
            os.chown(folder, APP_UID, APP_UID)
        return str(folder)

    def start(self, files: dict[str, str], argv: list[str], *, listens: bool = True, **changed: Any) -> Replica:
        return self.begin(self.make(files, argv, **changed), listens=listens)

    def begin(self, spec: dict[str, Any], *, listens: bool = True) -> Replica:
        started = self.ask("start", spec=spec)
        assert "error" not in started, started
        replica = Replica(self, spec, started)
        self.replicas.append(replica)
        if listens:
            replica.until(is_listening=True)
        return replica

    def lab(self, **changed: Any) -> Replica:
        return self.start({"lab.py": LAB}, [self.python, "lab.py"], **changed)

    @property
    def python(self) -> str:
        return str(Path(python_of(self.mode)).resolve())

    def _binds(self) -> dict[str, str]:
        prefix = str(Path(self.python).parent.parent)
        return {} if prefix in ("/usr", "/") else {prefix: prefix}


@contextlib.contextmanager
def engine_of(mode: str) -> Iterator[Engine]:
    """Yield an engine; at the end stop all its replicas, and check that nothing is left of them."""
    home = Path(tempfile.mkdtemp(prefix="eng-"))
    for name in ("run", "apps", "logs", "volumes"):
        (home / name).mkdir()
    home.chmod(0o755)
    give(home, mode)
    engine = Engine(mode, home)
    try:
        yield engine
        for key in engine.ask("states"):
            engine.ask("stop", key=key, grace_s=0.0)
        engine.end()
        assert list((home / "run").glob("shims/*")) == []
        shims = [replica.shim for replica in engine.replicas]
        until(lambda: not groups_of(shims), "the end of their groups")  # On a busy machine they take a moment.
        assert str(home) not in Path("/proc/self/mountinfo").read_text()
    finally:
        engine.end(kill=True)
        shutil.rmtree(home, ignore_errors=True)


def groups_of(shims: list[int]) -> list[str]:
    """Return the cgroups of these shims' apps."""
    prefixes = tuple(f"moorage-run-run-{shim}-" for shim in shims)
    found: list[str] = []
    for folder, names, _ in os.walk("/sys/fs/cgroup"):
        found += [f"{folder}/{name}" for name in names if name.startswith(prefixes)]
    return found if prefixes else []


def lives(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
