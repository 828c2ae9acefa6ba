"""Real invoker and edge processes without the control process; tests send the routes.

Tests run as root and as an ordinary user if started by root, else only as the current user. Function names and ids are
never reused, so that tests can share the two processes.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from tests.ports import free_port

import moorage
from moorage.runtime.edge import spool
from moorage.runtime.workers.main import token_of
from moorage.runtime.workers.runtimes import resolve

T = TypeVar("T")
ORDINARY_USER = 12345
MODES = ["root", "user"] if os.getuid() == 0 else ["user"]
# The modes as parameters: an unprivileged run of a test that also runs as root is left to `make test-all`.
MODE_PARAMS = [MODES[0], *(pytest.param(mode, marks=pytest.mark.twin) for mode in MODES[1:])]
MAIN_FILES = {"python": "main.py", "nodejs": "index.js"}
WAIT_S = 90.0
SOURCE = Path(moorage.__file__).parents[1]
CANARY = "a-secret-of-the-platform"

# Runs the code of a test and returns its variable `answer`.
LAB = """
def main(args):
    scope = {"args": args}
    exec(args["code"], scope)
    return scope.get("answer")
"""
NODE_LAB = """
const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor
exports.main = args => new AsyncFunction('require', 'args', args.code)(require, args)
"""
# Helpers for the code of tests, besides the standard library.
PRELUDE = """
import ctypes, errno, json, os, signal, socket, subprocess, sys, threading, time

def attempt(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, "timed out")
    return "done"

def write(path):
    with open(path, "w") as file:
        file.write("x")

def read(path):
    with open(path, "rb") as file:
        return file.read()

def edge_socket():
    own = [name for name in os.listdir("/proc/self/fd") if int(name) >= 900]
    return socket.socket(fileno=os.dup(int(own[0])))
"""

_numbers = itertools.count(1)


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("edge", timeout=WAIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass(frozen=True)
class Answer:
    status: int
    json: Any


@dataclass
class Host:
    """Invoker and edge of one machine."""

    mode: str
    data: Path
    env: dict[str, str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    routes: dict[int, dict[str, Any]] = field(default_factory=dict)
    revisions: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    port: int = 0

    @property
    def invoker(self) -> subprocess.Popen[bytes]:
        return self.processes["moorage.runtime.workers.main"]

    @property
    def edge(self) -> subprocess.Popen[bytes]:
        return self.processes["moorage.runtime.edge.main"]

    # The two processes.

    def start(self, module: str) -> None:
        with open(self.data / f"{module}.log", "ab") as log:
            process = subprocess.Popen(
                [python_of(self.mode), "-m", module],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                **user_of(self.mode),
            )
        self.processes[module] = process
        assert process.stdout is not None
        assert process.stdout.readline() == b"listening\n", self.log(module)

    def stop(self, module: str, number: signal.Signals = signal.SIGTERM) -> int:
        """End one of the two processes and return its exit code."""
        process = self.processes.pop(module)
        process.send_signal(number)
        code = process.wait(WAIT_S)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def log(self, module: str) -> str:
        return (self.data / f"{module}.log").read_text(errors="replace")

    # Functions.

    def put(self, code: str | dict[str, str], *, language: str = "python", **changed: Any) -> int:
        """Create a function and return its id."""
        number = next(_numbers)
        self.deploy(number, code, language=language, **changed)
        return number

    def deploy(self, number: int, code: str | dict[str, str], *, language: str = "python", **changed: Any) -> None:
        """Set the route of a function, or another revision of it."""
        main = MAIN_FILES[language]
        digest = f"code-{next(_numbers)}"
        self._write_code(digest, {main: code} if isinstance(code, str) else code)
        route = {
            "id": number,
            "org": "1",
            "name": f"f-{number}",
            "revision": next(self.revisions),
            "version": 1,
            "runtime": resolve(language),
            "digest": digest,
            "main": main,
            "timeout_ms": 60_000,
            "memory_mb": 256,
            "env": [],
        }
        self.routes[number] = {**route, **changed}
        answer = self.door("PATCH", "/routes", {"set": [self.routes[number]]})
        assert answer.status == 200, answer

    def drop(self, number: int) -> None:
        assert self.door("PATCH", "/routes", {"drop": [number]}).status == 200

    def _write_code(self, digest: str, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.data / "code" / digest / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        for path in (self.data / "code" / digest, *(self.data / "code" / digest).rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)

    # Calls.

    def call(self, number: int, params: Any = None, **changed: Any) -> dict[str, Any]:
        """Call a function through the unix socket of the platform."""
        activation = f"{next(_numbers):032x}"
        asked = {"function": number, "activation": activation, "params": {} if params is None else params}
        answer = self.door("POST", "/invoke", {**asked, **changed})
        assert answer.status == 200, answer
        told: dict[str, Any] = answer.json
        return told

    def result(self, number: int, params: Any = None) -> Any:
        told = self.call(number, params)
        assert told["status"] == "success", told
        return told["result"]

    def error(self, number: int, params: Any = None) -> str:
        told = self.call(number, params)
        assert told["status"] == "error", told
        return str(told["error"])

    def web(self, number: int, org: str = "1") -> tuple[int, bytes]:
        """Call a function at its public address."""
        client = HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        client.request("GET", f"/api/v1/web/org_{org}/default/f-{number}")
        answer = client.getresponse()
        body = answer.read()
        client.close()
        return answer.status, body

    def connection(self) -> HTTPConnection:
        return _UnixConnection(self.data / "run" / "edge.sock")

    def door(self, method: str, target: str, body: Any = None) -> Answer:
        client = self.connection()
        client.request(method, target, None if body is None else json.dumps(body))
        answer = client.getresponse()
        told = Answer(answer.status, json.loads(answer.read()))
        client.close()
        return told

    def health(self) -> dict[str, Any]:
        health: dict[str, Any] = self.door("GET", "/health").json
        return health

    def records(self) -> list[spool.Record]:
        """Return all records; fails on an invalid one."""
        found = []
        for path in sorted((self.data / "spool").glob("*.spool")):
            data, at = path.read_bytes(), 0
            while length := spool.length_at(data, at):
                found.append(spool.decode(data, at + spool.LENGTH_SIZE, length))
                at += spool.LENGTH_SIZE + length
        return found

    # Processes and cgroups.

    def sandboxes(self) -> list[int]:
        """Return the PIDs of all sandboxes, waiting ones included."""
        return sorted(pid for pid in pids() if is_cell(pid) and self.invoker.pid in ancestors_of(pid))

    def groups(self) -> list[str]:
        """Return the cgroups of this host's sandboxes."""
        prefix = f"moorage-{token_of(self.data)}-cell"
        found: list[str] = []
        for folder, names, _ in os.walk("/sys/fs/cgroup"):
            found += [f"{folder}/{name}" for name in names if name.startswith(prefix)]
        return found


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""


def parent_of(pid: int) -> int:
    found = re.search(r"^PPid:\t(\d+)", _status(pid), re.MULTILINE)
    return int(found[1]) if found else 0


def ancestors_of(pid: int) -> list[int]:
    found = []
    while pid := parent_of(pid):
        found.append(pid)
    return found


def is_cell(pid: int) -> bool:
    """Whether a process runs in a PID namespace below ours."""
    status = _status(pid)
    found = re.search(r"^NSpid:\t(.*)$", status, re.MULTILINE)
    own = re.search(r"^NSpid:\t(.*)$", _status(os.getpid()), re.MULTILINE)
    is_inner = found is not None and own is not None and len(found[1].split()) > len(own[1].split())
    return is_inner and "\nState:\tZ" not in status


def until(condition: Callable[[], T], what: str = "it") -> T:
    """Wait until the condition is true, and return its value."""
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} has not come true"
        time.sleep(0.02)
    return found


@dataclass
class Lab:
    """A function that runs code of a test."""

    host: Host
    number: int
    prelude: str = PRELUDE

    def run(self, code: str, **params: Any) -> Any:
        """Run code in the sandbox; return its `answer`."""
        return self.host.result(self.number, self._params(code, params))

    def error(self, code: str, **params: Any) -> str:
        """Run code that fails the call; return the error message."""
        return self.host.error(self.number, self._params(code, params))

    def params(self, code: str, **params: Any) -> dict[str, Any]:
        return self._params(code, params)

    def _params(self, code: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"code": self.prelude + textwrap.dedent(code), **params}


def lab_on(host: Host, **changed: Any) -> Lab:
    return Lab(host, host.put(LAB, **changed))


def node_lab_on(host: Host, **changed: Any) -> Lab:
    return Lab(host, host.put(NODE_LAB, language="nodejs", **changed), prelude="")


@contextlib.contextmanager
def running(mode: str, **env: str) -> Iterator[Host]:
    """Start both processes; at the end stop them and check for leftovers."""
    data = Path(tempfile.mkdtemp(prefix="cells-"))
    host = Host(mode, data, _environment(mode, data) | env)
    host.port = int(host.env.setdefault("MOORAGE_EDGE_PORT", str(free_port())))
    (data / "run").mkdir()
    (data / "code").mkdir()
    data.chmod(0o755)
    give(data, mode)
    try:
        host.start("moorage.runtime.workers.main")
        host.start("moorage.runtime.edge.main")
        yield host
    finally:
        for module in reversed(list(host.processes)):
            host.stop(module)
        shutil.rmtree(data, ignore_errors=True)


def _environment(mode: str, data: Path) -> dict[str, str]:
    env = {
        "MOORAGE_DATA": str(data),
        "MOORAGE_FUNCTION_POOL": "2",
        "MOORAGE_VAULT_KEY": CANARY,
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
    }
    return env | path_of(mode)


def path_of(mode: str) -> dict[str, str]:
    """Return the PYTHONPATH of the platform's modules."""
    if is_another(mode):
        return {"PYTHONPATH": f"{in_reach(Path(SOURCE))}:{in_reach(Path(site_packages()))}"}
    return {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}


@functools.cache
def in_reach(folder: Path) -> Path:
    """Return a folder, or a copy of it if other users cannot enter its parents."""
    if _is_open(folder / "any"):
        return folder
    place = Path(tempfile.mkdtemp(prefix="moorage-reach-"))
    place.chmod(0o755)
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    try:
        shutil.copytree(folder, place / folder.name, copy_function=os.link)
    except (OSError, shutil.Error):  # The folder is on another disk.
        shutil.copytree(folder, place / folder.name, dirs_exist_ok=True)
    return place / folder.name


def give(folder: Path, mode: str) -> None:
    """Change the owner of a folder and its contents."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, *((ORDINARY_USER, ORDINARY_USER) if is_another(mode) else (os.getuid(), os.getgid())))


def is_another(mode: str) -> bool:
    return mode == "user" and os.getuid() == 0


def user_of(mode: str) -> dict[str, Any]:
    return {"user": ORDINARY_USER, "group": ORDINARY_USER, "extra_groups": []} if is_another(mode) else {}


def python_of(mode: str) -> str:
    """Return an interpreter that the user can run: ours may be in a private home."""
    if not is_another(mode):
        return sys.executable
    same = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    candidates = [Path(sys.executable).resolve(), *map(Path, filter(None, [shutil.which(same, path="/usr/bin")]))]
    return str(next(path for path in candidates if _is_open(path)))


def _is_open(path: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)


def site_packages() -> str:
    return str(Path(msgspec.__file__).parents[1])
