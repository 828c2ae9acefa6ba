"""Starting zygotes, and asking them for cells."""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage.runtime.workers.messages import close_all
from moorage.runtime.workers.runtimes import Runtime
from moorage.runtime.workers.sandbox import PIDS

SCRIPT = Path(__file__).parent / "zygote.py"
NODE_WORKER = Path(__file__).parent / "node_worker.js"
RENEW_AFTER = 2000  # forks; children of one zygote share its memory layout and hash seed
TMP_MB = 64
FILE_MB = 64
CELL_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108
# One helper thread is enough for one function, and every thread's own memory counts.
NODE_FLAGS = ("--max-old-space-size=1536", "--v8-pool-size=1")
NODE_ENV = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_TOP_PAD_": "16384"}


@dataclass(frozen=True)
class Setup:
    """What holds for all cells of this host."""

    sandbox: bool
    notify: bool  # cells have a network, through the supervisor
    own_users: bool  # every cell gets a user id of its own
    root: str
    runtimes: dict[str, Runtime]
    is_counted: bool = True  # a memory controller counts what the kernel holds for a cell
    env: dict[str, str] = field(default_factory=dict)


class Zygote:
    """One zygote process. `on_message` hears of its cells' process ids and of failures."""

    def __init__(self, setup: Setup, python: Runtime, on_message: Callable[[dict[str, Any]], None]) -> None:
        self._setup = setup
        self._on_message = on_message
        self._waiting: list[tuple[bytes, tuple[int, ...]]] | None = []
        self.forks = 0
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen(
            [str(python.executable), "-I", "-S", str(SCRIPT), str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            env={"LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        ours.setblocking(False)
        self._channel = ours
        said = {
            "sandbox": setup.sandbox,
            "notify": setup.notify,
            "is_counted": setup.is_counted,
            "own_users": setup.own_users and setup.sandbox,
            "root": setup.root,
            "env": {**CELL_ENV, **setup.env},
        }
        ours.send(json.dumps(said).encode())
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours, self._readable)

    def ask(self, request: dict[str, Any], descriptors: tuple[int, ...]) -> None:
        """Ask for a cell; the descriptors are duplicated on the way and closed here."""
        self.forks += 1
        message = json.dumps(request).encode()
        if self._waiting is not None:
            self._waiting.append((message, descriptors))
        else:
            self._send(message, descriptors)

    def stop(self) -> None:
        """Let it go; its cells live on."""
        self._close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)

    def _close(self) -> None:
        """Let go of the channel, and of what was never sent through it; safe to repeat."""
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel)
            self._channel.close()
        waiting, self._waiting = self._waiting or [], None
        for _, descriptors in waiting:
            close_all(descriptors)

    def _send(self, message: bytes, descriptors: tuple[int, ...]) -> None:
        rights = array.array("i", descriptors)
        # Where it has died, the end of its channel says so, and what was asked of it is asked again.
        with contextlib.suppress(OSError):
            self._channel.setblocking(True)
            self._channel.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            self._channel.setblocking(False)
        close_all(descriptors)

    def _readable(self) -> None:
        while True:
            try:
                data = self._channel.recv(65536)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self._close()
                self._on_message({"zygote": "gone", "of": self})
                return
            message = json.loads(data)
            if "zygote" in message:
                waiting, self._waiting = self._waiting or [], None
                for request, descriptors in waiting:
                    self._send(request, descriptors)
            self._on_message(message)


def request(cell: int, uid: int) -> dict[str, Any]:
    """Return what a zygote is told about a cell."""
    return {
        "cell": cell,
        "uid": uid,
        "tmp_mb": TMP_MB,
        "file_mb": FILE_MB,
        # The kernel looks at this before it copies a process, and at the group's limit only afterwards: a function that
        # forks without end would keep the processor in there for longer than anybody should wait for it.
        "rlimits": {"RLIMIT_NPROC": (PIDS, PIDS * 2)} if uid else {},
        "pids": PIDS * 2,
    }


def beginning(setup: Setup, runtime: Runtime, code: Path | None) -> bytes:
    """Return what a hull is told when it is to become a cell of a runtime."""
    argv: list[str] = []
    if runtime.language == "nodejs":
        if setup.sandbox:
            argv = [inside(runtime), *NODE_FLAGS, "/opt/moorage/node_worker.js", "/code"]
        else:
            argv = [str(runtime.executable), *NODE_FLAGS, str(NODE_WORKER), str(code)]
    env = {**CELL_ENV, **setup.env, **NODE_ENV} if argv else {}
    return json.dumps({"argv": argv, "env": env, "code": str(code or "/code")}).encode()


def inside(runtime: Runtime) -> str:
    """Return where a runtime's executable is inside the sandbox."""
    return f"{_folder_inside(runtime).rstrip('/')}/bin/{runtime.executable.name}"


def binds(runtimes: dict[str, Runtime]) -> dict[str, str]:
    """Return what has to be mounted for the runtimes, beyond the system's folders: path inside -> path outside."""
    found = {_folder_inside(each): str(_folder(each)) for each in runtimes.values() if not _is_of_system(each)}
    found["/opt/moorage/node_worker.js"] = str(NODE_WORKER)
    return found


def _folder_inside(runtime: Runtime) -> str:
    """Return where a runtime's folder is inside. A Python has its own path in its settings, so that stays the same."""
    if runtime.language == "nodejs" and not _is_of_system(runtime):
        return f"/opt/{runtime.name.replace(':', '-')}"
    return str(_folder(runtime))


def _is_of_system(runtime: Runtime) -> bool:
    """Tell whether a runtime is in the folders of the system that every sandbox has; `/usr/local` is not among them."""
    return str(_folder(runtime)) in ("/usr", "/")


def _folder(runtime: Runtime) -> Path:
    return runtime.executable.parent.parent
