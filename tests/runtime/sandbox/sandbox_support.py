"""Sandboxed processes for tests: with their own namespaces, the real filter and the real network supervisor.

This file is also the program that a sandboxed process starts as (`python sandbox_support.py SETUP`): it drops its
rights as a function sandbox does, and then executes the program of the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from moorage.core.net.own_networks import read_own_networks
from moorage.runtime.sandbox import seccomp, syscalls
from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.sandbox.network.policy import NetworkPolicy

SOURCE = Path(syscalls.__file__).parents[3]
TIMEOUT_S = 60


def outside_address() -> str:
    """Return a non-loopback address of this machine: it represents the internet if a policy allows it."""
    singles = [one.removesuffix("/32") for one in read_own_networks() if one.endswith("/32")]
    return next(
        address for address in singles if not address.startswith(("127.", "169.254.")) and address[-4:] != ".255"
    )


@dataclass
class Netd:
    """A running network supervisor."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    cells: int = 0

    def open_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def idle_descriptors(self) -> int:
        """Count the descriptors once no sandbox is left."""
        folder = Path(f"/proc/{self.process.pid}/fd")
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            if not any("seccomp" in _link(fd) for fd in folder.iterdir()):
                return self.open_descriptors()
            time.sleep(0.02)
        raise AssertionError("the supervisor still serves sandboxes")

    def descriptors_after(self, expected: int) -> int:
        """Return the number of descriptors when it is as expected, or after a timeout."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.open_descriptors() != expected and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.open_descriptors()


def _link(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except FileNotFoundError:
        return ""


@contextlib.contextmanager
def running_netd(
    resolv_conf: Path | None = None, *, python: str = sys.executable, source: Path = SOURCE, user: int | None = None
) -> Iterator[Netd]:
    ours, theirs = socket.socketpair()
    argv = [
        python,
        "-m",
        "moorage.runtime.sandbox.network.supervisor",
        str(theirs.fileno()),
        *([str(resolv_conf)] if resolv_conf else []),
    ]
    process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], env={"PYTHONPATH": str(source)}, **_as_user(user))
    theirs.close()
    try:
        yield Netd(process, ours)
        assert process.poll() is None, "the supervisor has died"
    finally:
        ours.close()
        process.wait(10)


def _as_user(user: int | None) -> dict[str, Any]:
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def start_inside(
    netd: Netd | None,
    argv: list[str],
    *,
    policy: NetworkPolicy | None = None,
    python: str = sys.executable,
    source: Path = SOURCE,
    user: int | None = None,
    **options: Any,
) -> subprocess.Popen[str]:
    """Start a program in a sandbox; without a supervisor its filter does not notify."""
    setup: dict[str, Any] = {"argv": argv, "channel": None, "policy": None}
    fds: list[int] = []
    if netd:
        netd.cells += 1
        fds = [netd.channel.fileno()]
        policy = policy or NetworkPolicy()
        rules = {"allow": policy.allow, "block": policy.block, "outside": policy.outside, "egress": policy.egress}
        setup |= {"channel": fds[0], "policy": rules, "cell": netd.cells}
    command = [python, str(source.parent / "sandbox_support.py" if user else __file__), json.dumps(setup)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    env = {"PYTHONPATH": str(source), "PATH": os.environ["PATH"]}
    return subprocess.Popen(command, pass_fds=fds, env=env, text=True, **_as_user(user), **pipes)


def run_inside(netd: Netd | None, argv: list[str], **options: Any) -> str:
    """Run a program in a sandbox and return its output; a failure is an AssertionError with its errors."""
    with start_inside(netd, argv, **options) as process:
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 0, f"status {process.returncode}\n{out}\n{err}"
    return out


def python_argv(code: str, *arguments: object, python: str = sys.executable) -> list[str]:
    return [python, "-c", PRELUDE + textwrap.dedent(code), *map(str, arguments)]


def python_inside(netd: Netd | None, code: str, *arguments: object, **options: Any) -> Any:
    """Run Python code in a sandbox. It finds its arguments in `argv` and its last line of output is JSON."""
    python = options.get("python", sys.executable)
    out = run_inside(netd, python_argv(code, *arguments, python=python), **options)
    return json.loads(out.splitlines()[-1])


PRELUDE = """
import ctypes, errno, fcntl, json, os, socket, struct, sys, threading, time
argv = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(int(number)), *[ctypes.c_long(one) for one in arguments])
    return errno.errorcode[ctypes.get_errno()] if result < 0 else "done"

def attempt(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, "timed out")
    return "done"

def tell(value):
    print(json.dumps(value), flush=True)
"""


@dataclass
class Site:
    """An HTTP server of the host that records its visitors."""

    address: str
    port: int
    visits: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}/"


@contextlib.contextmanager
def serving(address: str) -> Iterator[Site]:
    """Serve on all addresses of the host, loopback too."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6
        request_queue_size = 128

        def verify_request(self, request: object, client_address: Any) -> bool:
            site.visits.append(client_address[0])
            return True

    server = Server(("::", 0), Answer)
    site = Site(address, server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def readable_by_everyone() -> Iterator[tuple[str, Path]]:
    """Yield an interpreter and a copy of the package that all users of the machine can read."""
    found = [Path(sys.executable).resolve(), Path("/usr/bin/python3")]
    python = next(str(one) for one in found if not any(parent == Path("/root") for parent in one.parents))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "src")
        for part in (
            "__init__.py",
            "core/__init__.py",
            "core/kit",
            "core/net",
            "runtime/__init__.py",
            "runtime/sandbox",
        ):
            copied, target = SOURCE / "moorage" / part, source / "moorage" / part
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(copied, target) if copied.is_dir() else shutil.copy(copied, target)
        shutil.copy(__file__, source.parent)
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o755)
        yield python, source


def become_sandbox(setup: dict[str, Any]) -> None:
    """Enter a sandbox: namespaces, network, drop of rights, filter."""
    user, group = os.getuid(), os.getgid()
    kinds = syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC
    syscalls.unshare(kinds)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"1000 {user} 1")
    Path("/proc/self/gid_map").write_text(f"1000 {group} 1")
    network.prepare_namespace()
    _ask_own_resolver()
    sockets = network.make_resolver_sockets()
    syscalls.drop_capabilities()
    syscalls.no_new_privs()
    notify = setup["channel"] is not None
    listener = seccomp.install(seccomp.build(notify=notify), listener=notify)
    if listener is not None:
        with socket.socket(fileno=setup["channel"]) as channel:
            policy = NetworkPolicy(**{name: _tuple(value) for name, value in setup["policy"].items()})
            network.hand_over(channel, setup["cell"], listener, *sockets, policy)
        os.close(listener)
    for sock in sockets:
        sock.close()


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _ask_own_resolver() -> None:
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    with tempfile.NamedTemporaryFile("w") as conf:
        conf.write(f"nameserver {network.RESOLVER_ADDRESS}\n")
        conf.flush()
        syscalls.mount(conf.name, "/etc/resolv.conf", None, syscalls.MS_BIND)


def main() -> None:
    setup = json.loads(sys.argv[1])
    become_sandbox(setup)
    os.execvp(setup["argv"][0], setup["argv"])


if __name__ == "__main__":
    main()
