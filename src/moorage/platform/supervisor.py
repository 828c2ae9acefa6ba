"""The supervisor of `moorage up`: starts, restarts and stops the processes.

It imports the standard library only, because it stays in memory as long as the platform runs. The children are
configured by argv and environment; each writes `ready` to a pipe when it serves.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import field
from pathlib import Path
from typing import Any

from moorage.core.kit.records import dataclass
from moorage.platform import program_pages, terminal
from moorage.platform.terminal import Startup

STOP_TIMEOUT_S = 9.0
BACK_OFF_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
STEADY_S = 60.0  # A child that ran this long restarts with the shortest back-off.
DROP_PAGES_AFTER_S = 2.0  # A child that is not Moorage's own code has started by then.
PR_SET_PDEATHSIG = 1
PROCESSES_FILE = "processes.json"  # read by `accounts/operator/machine.py`


@dataclass
class Child:
    name: str
    argv: list[str]
    env: dict[str, str]
    says_ready: bool
    probe: tuple[str, int] | None = None  # address to connect to, for a child that does not write `ready`
    taken_over: dict[str, int] | None = None  # PID and ready descriptor of a process that `moorage up` has started
    process: subprocess.Popen[bytes] | TakenOver | None = None
    pipe: int | None = None
    output: bytes = b""
    is_ready: bool = False
    started_at: float = 0.0
    failures: int = 0
    restarts: int = 0
    start_at: float = 0.0
    drop_pages_at: float | None = None

    def start(self) -> None:
        """Start the process; the kernel kills it when the supervisor dies."""
        if self.taken_over is not None:
            self.process, self.pipe = TakenOver(self.taken_over["pid"]), self.taken_over["ready"]
            os.set_inheritable(self.pipe, False)
            self.taken_over, self.started_at = None, time.monotonic()
            return
        reading, writing = os.pipe()
        env = {**self.env, "MOORAGE_READY_FD": str(writing)} if self.says_ready else dict(self.env)
        env["MOORAGE_SUPERVISOR"] = str(os.getpid())
        if self.started_at:
            env["MOORAGE_RESTARTED"] = "1"
        self.process = subprocess.Popen(
            self.argv,
            env=env,
            stdin=subprocess.DEVNULL,
            pass_fds=(writing,) if self.says_ready else (),
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        os.close(writing)
        self.pipe, self.output = reading, b""
        self.started_at = time.monotonic()
        self.drop_pages_at = None if self.says_ready else self.started_at + DROP_PAGES_AFTER_S
        self.is_ready = False

    def read_output(self) -> None:
        """Read from the child's pipe; a line `ready` marks it as ready."""
        if self.pipe is None:
            return
        chunk = os.read(self.pipe, 4096)
        self.output += chunk
        if b"ready\n" in self.output:
            self.is_ready = True
        if not chunk:
            os.close(self.pipe)
            self.pipe = None

    def probe_port(self) -> None:
        """Connect to the port of a child that does not write `ready`."""
        if self.probe is not None and not self.is_ready and self.exit_code() is None:
            with contextlib.suppress(OSError), socket.create_connection(self.probe, timeout=0.2):
                self.is_ready = True

    def drop_pages(self) -> None:
        """Free the memory of program code that only the start has used, once it is time."""
        if self.drop_pages_at is None or time.monotonic() < self.drop_pages_at or self.process is None:
            return
        self.drop_pages_at = None
        if program_pages.drop(self.process.pid) and self.probe is not None:
            program_pages.request_once(self.probe)

    def exit_code(self) -> int | None:
        return self.process.poll() if self.process is not None else None

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number) if number == signal.SIGKILL else self.process.send_signal(number)


class TakenOver:
    """A child process that another program started before it became the supervisor, like a `Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self) -> int:
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class Supervisor:
    children: list[Child]
    plan: dict[str, Any]
    startup: Startup = field(default_factory=Startup)
    stopping: bool = False
    announced: bool = False
    _wake: tuple[int, int] = field(default_factory=os.pipe)

    def run(self) -> int:
        """Run until a signal. Return the exit code."""
        os.set_blocking(self._wake[1], False)
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for child in self.children:
            child.start()
        self._write_processes()
        code = 0
        while not self.stopping:
            self._wait()
            code = self._check_children()
        self._stop()
        return code

    def _on_signal(self, number: int, _frame: Any) -> None:
        if number == signal.SIGINT and not self.stopping:
            terminal.print_stopping(self.plan)
        self.stopping = True

    def _wait(self) -> None:
        pipes = [child.pipe for child in self.children if child.pipe is not None]
        timers = [child.start_at - time.monotonic() for child in self.children if child.process is None]
        timers += [child.drop_pages_at - time.monotonic() for child in self.children if child.drop_pages_at is not None]
        if not self.announced:
            timers.append(0.02)
        timeout = max(min(timers), 0) if timers else None
        readable, _, _ = select.select([self._wake[0], *pipes], [], [], timeout)
        if self._wake[0] in readable:
            os.read(self._wake[0], 4096)
        for child in self.children:
            if child.pipe in readable:
                child.read_output()

    def _check_children(self) -> int:
        for child in self.children:
            child.probe_port()
            code = child.exit_code()
            if code is not None:
                if not self.announced:
                    self._fail(f"{child.name} could not start (exit code {code})")
                    return code if code > 0 else 1
                self._schedule_restart(child, code)
            elif child.process is None and time.monotonic() >= child.start_at:
                child.start()
                child.restarts += 1
                self._write_processes()
            child.drop_pages()
        return 0 if self.announced else self._check_start()

    def _check_start(self) -> int:
        """Announce the platform when all children are ready; stop it when one never will be."""
        late = {child.name: child.process.pid for child in self.children if not child.is_ready and child.process}
        if not late:
            self.announced = True
            output = {child.name: child.output.decode() for child in self.children}["control"]
            facts = dict(line.split(" ", 1) for line in output.splitlines() if " " in line)
            terminal.print_ready(self.plan, facts)
        elif problem := self.startup.problem(late):
            self._fail(problem)
            return 1
        return 0

    def _fail(self, problem: str) -> None:
        terminal.print_failure(self.plan, problem, started_at=self.startup.started_at)
        self.stopping = True

    def _schedule_restart(self, child: Child, code: int) -> None:
        if time.monotonic() - child.started_at > STEADY_S:
            child.failures = 0
        delay = BACK_OFF_S[min(child.failures, len(BACK_OFF_S) - 1)]
        child.failures += 1
        child.process = child.drop_pages_at = None
        child.start_at = time.monotonic() + delay
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        terminal.print_message(f"{child.name} ended ({how}); starting it again in {delay:g} s")

    def _write_processes(self) -> None:
        """Write the PIDs for the operator's routes of the API."""
        mine = {"name": "supervisor", "pid": os.getpid(), "restarts": 0}
        others = [
            {"name": child.name, "pid": child.process.pid, "restarts": child.restarts}
            for child in self.children
            if child.process is not None
        ]
        path = Path(self.plan["data"]) / "run" / PROCESSES_FILE
        with contextlib.suppress(OSError):
            path.with_suffix(".new").write_text(json.dumps({"processes": [mine, *others]}))
            path.with_suffix(".new").replace(path)

    def _stop(self) -> None:
        """Send SIGTERM to every child, wait, then SIGKILL."""
        for child in self.children:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < deadline and any(
            child.process and child.exit_code() is None for child in self.children
        ):
            time.sleep(0.02)
        for child in self.children:
            child.signal(signal.SIGKILL)
            if child.process is not None:
                child.process.wait()


def _child(plan: dict[str, Any]) -> Child:
    probe = plan.get("probe")
    return Child(
        plan["name"],
        plan["argv"],
        plan["env"],
        plan["says_ready"],
        (probe[0], probe[1]) if probe else None,
        plan.get("taken_over"),
    )


def main() -> None:
    """Run the plan that `moorage up` passed as a file."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    children = [_child(each) for each in plan["children"]]
    sys.exit(Supervisor(children, plan).run())


if __name__ == "__main__":
    main()
