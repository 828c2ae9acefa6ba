"""Starts zygotes and sends them requests to fork sandboxes."""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any

from moorage.core.kit.processes import cpus
from moorage.core.kit.processes.sessions import LOWEST_PRIORITY, set_session_nice
from moorage.core.kit.records import dataclass
from moorage.runtime.workers.cpu import slices
from moorage.runtime.workers.messages import close_all
from moorage.runtime.workers.runtimes import Runtime
from moorage.runtime.workers.sandbox import PIDS

SCRIPT = Path(__file__).parent / "zygote.py"
NODE_WORKER = Path(__file__).parent / "node_worker.js"
MAX_FORKS = 2000  # before a zygote is replaced: its children share its memory layout and hash seed
TMP_MB = 64
FILE_MB = 64
SANDBOX_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108
# One V8 helper thread is enough for one function, and each thread costs memory.
NODE_FLAGS = ("--max-old-space-size=1536", "--v8-pool-size=1")
NODE_ENV = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_TOP_PAD_": "16384"}


@dataclass(frozen=True)
class Setup:
    """Properties that all function sandboxes of this host share."""

    sandbox: bool  # False: workers run unsandboxed
    notify: bool  # seccomp notifications are available: sandboxes have a network, through the supervisor
    own_users: bool  # each sandbox has its own user id
    root: str
    runtimes: dict[str, Runtime]
    is_counted: bool = True  # the cgroup memory controller is available
    keeps_session: bool = False  # sandboxes stay in the zygote's session, because no cgroup has their CPU weight
    supervisor: int | None = None  # PID of the supervisor of the platform
    env: dict[str, str] = field(default_factory=dict)


class Zygote:
    """One zygote process. `on_message` receives the PIDs of its forks, and failures."""

    def __init__(
        self,
        setup: Setup,
        python: Runtime,
        on_message: Callable[[dict[str, Any]], None],
        *,
        is_idle: bool = False,
    ) -> None:
        """Start the process; with `is_idle`, sandboxes get hardly any CPU time while others need it."""
        self._setup = setup
        self.is_idle = is_idle
        self._on_message = on_message
        self._waiting: list[tuple[bytes, tuple[int, ...]]] | None = []
        self.forks = 0
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen(
            [str(python.executable), "-I", "-S", str(SCRIPT), str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            env={"LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # With autogroup scheduling, the invoker must not share the weight of sandboxes.
        )
        if is_idle:
            set_session_nice(LOWEST_PRIORITY, self.process.pid)
            cpus.leave_one_free([self.process.pid])
        elif setup.keeps_session:
            slices.shorten(self.process.pid, is_inherited=True)  # The platform has short slices during a flood.
        theirs.close()
        ours.setblocking(False)
        self._channel = ours
        message = {
            "sandbox": setup.sandbox,
            "notify": setup.notify,
            "is_counted": setup.is_counted,
            "keeps_session": setup.keeps_session,
            "own_users": setup.own_users and setup.sandbox,
            "root": setup.root,
            "env": {**SANDBOX_ENV, **setup.env},
        }
        ours.send(json.dumps(message).encode())
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours, self._readable)
        self.used_at = self._loop.time()

    def fork(self, request: dict[str, Any], descriptors: tuple[int, ...]) -> None:
        """Request a sandbox. Takes ownership of the descriptors."""
        self.forks += 1
        self.used_at = self._loop.time()
        message = json.dumps(request).encode()
        if self._waiting is not None:
            self._waiting.append((message, descriptors))
        else:
            self._send(message, descriptors)

    def stop(self) -> None:
        """Kill the zygote; its sandboxes keep running."""
        self._close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)

    def _close(self) -> None:
        """Close the channel and the descriptors of unsent requests; safe to repeat."""
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel)
            self._channel.close()
        waiting, self._waiting = self._waiting or [], None
        for _, descriptors in waiting:
            close_all(descriptors)

    def _send(self, message: bytes, descriptors: tuple[int, ...]) -> None:
        rights = array.array("i", descriptors)
        # A dead zygote shows as end of file on the channel; its pending forks are then retried on another one.
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


def fork_request(sandbox: int, uid: int) -> dict[str, Any]:
    return {
        "cell": sandbox,
        "uid": uid,
        "tmp_mb": TMP_MB,
        "file_mb": FILE_MB,
        # The kernel checks this limit before it copies a process, but the limit of the cgroup afterwards: without it
        # a fork bomb would keep the CPU in the kernel too long.
        "rlimits": {"RLIMIT_NPROC": (PIDS, PIDS * 2)} if uid else {},
        "pids": PIDS * 2,
    }


def begin_message(setup: Setup, runtime: Runtime, code: Path | None) -> bytes:
    """Return the BEGIN payload; an empty argv starts the Python worker without exec."""
    argv: list[str] = []
    if runtime.language == "nodejs":
        if setup.sandbox:
            argv = [inside(runtime), *NODE_FLAGS, "/opt/moorage/node_worker.js", "/code"]
        else:
            argv = [str(runtime.executable), *NODE_FLAGS, str(NODE_WORKER), str(code)]
    env = {**SANDBOX_ENV, **setup.env, **NODE_ENV} if argv else {}
    return json.dumps({"argv": argv, "env": env, "code": str(code or "/code")}).encode()


def inside(runtime: Runtime) -> str:
    """Return the path of a runtime's executable inside the sandbox."""
    return f"{_folder_inside(runtime).rstrip('/')}/bin/{runtime.executable.name}"


def binds(runtimes: dict[str, Runtime]) -> dict[str, str]:
    """Return the bind mounts that runtimes need: path in the sandbox -> host path."""
    mounts = {_folder_inside(each): str(_folder(each)) for each in runtimes.values() if not _is_of_system(each)}
    mounts["/opt/moorage/node_worker.js"] = str(NODE_WORKER)
    return mounts


def _folder_inside(runtime: Runtime) -> str:
    """Return a runtime's folder in the sandbox; for Python always the host path."""
    if runtime.language == "nodejs" and not _is_of_system(runtime):
        return f"/opt/{runtime.name.replace(':', '-')}"
    return str(_folder(runtime))


def _is_of_system(runtime: Runtime) -> bool:
    """Whether every sandbox mounts the runtime's folder; `/usr/local` is not."""
    return str(_folder(runtime)) in ("/usr", "/")


def _folder(runtime: Runtime) -> Path:
    return runtime.executable.parent.parent
