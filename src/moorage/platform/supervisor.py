"""The supervisor behind `moorage up`: starts the processes, restarts one that crashes, stops them all.

It imports the standard library only, because it stays in memory as long as the platform runs. The children are told
what to do by their argv and environment; each says that it serves by writing `ready` to a pipe.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STOP_S = 9.0
READY_S = 60.0
BACK_OFF_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
STEADY_S = 60.0  # A child that ran this long starts over with the shortest back-off.
PR_SET_PDEATHSIG = 1
USUAL_METRICS_PORT = 8083


@dataclass
class Child:
    name: str
    argv: list[str]
    env: dict[str, str]
    says_ready: bool
    probe: tuple[str, int] | None = None  # an address that answers once a child serves that does not say so itself
    process: subprocess.Popen[bytes] | None = None
    pipe: int | None = None
    heard: bytes = b""
    is_ready: bool = False
    started_at: float = 0.0
    failures: int = 0
    start_at: float = 0.0

    def start(self) -> None:
        """Start the process. It dies with us, however we die: nothing of this list is meant to outlive `moorage up`."""
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
        self.pipe, self.heard = reading, b""
        self.started_at = time.monotonic()
        self.is_ready = False

    def listen(self) -> None:
        """Read what the child says about being ready."""
        if self.pipe is None:
            return
        chunk = os.read(self.pipe, 4096)
        self.heard += chunk
        if b"ready\n" in self.heard:
            self.is_ready = True
        if not chunk:
            os.close(self.pipe)
            self.pipe = None

    def look(self) -> None:
        """Ask a child that does not speak to us whether it serves."""
        if self.probe is not None and not self.is_ready and self.ended() is None:
            with contextlib.suppress(OSError), socket.create_connection(self.probe, timeout=0.2):
                self.is_ready = True

    def ended(self) -> int | None:
        return self.process.poll() if self.process is not None else None

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number) if number == signal.SIGKILL else self.process.send_signal(number)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class Supervisor:
    children: list[Child]
    on_ready: Any
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
        code = 0
        while not self.stopping:
            self._wait()
            code = self._turn()
        self._stop()
        return code

    def _on_signal(self, _number: int, _frame: Any) -> None:
        self.stopping = True

    def _wait(self) -> None:
        pipes = [child.pipe for child in self.children if child.pipe is not None]
        timers = [child.start_at - time.monotonic() for child in self.children if child.process is None]
        if not self.announced:
            timers.append(0.02)
        timeout = max(min(timers), 0) if timers else None
        readable, _, _ = select.select([self._wake[0], *pipes], [], [], timeout)
        if self._wake[0] in readable:
            os.read(self._wake[0], 4096)
        for child in self.children:
            if child.pipe in readable:
                child.listen()

    def _turn(self) -> int:
        for child in self.children:
            child.look()
            code = child.ended()
            if code is not None:
                if not self.announced:
                    say(f"{child.name} could not start (exit code {code}); its message is above")
                    self.stopping = True
                    return code if code > 0 else 1
                self._crashed(child, code)
            elif child.process is None and time.monotonic() >= child.start_at:
                child.start()
        if not self.announced and all(child.is_ready for child in self.children):
            self.announced = True
            self.on_ready({child.name: child.heard.decode() for child in self.children})
        if not self.announced and time.monotonic() - self.children[0].started_at > READY_S:
            late = ", ".join(child.name for child in self.children if not child.is_ready)
            say(f"not ready after {READY_S:.0f} s: {late}")
            self.stopping = True
            return 1
        return 0

    def _crashed(self, child: Child, code: int) -> None:
        if time.monotonic() - child.started_at > STEADY_S:
            child.failures = 0
        delay = BACK_OFF_S[min(child.failures, len(BACK_OFF_S) - 1)]
        child.failures += 1
        child.process = None
        child.start_at = time.monotonic() + delay
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        say(f"{child.name} ended ({how}); starting it again in {delay:g} s")

    def _stop(self) -> None:
        """Ask every child to end, wait, and end those that do not."""
        for child in self.children:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while time.monotonic() < deadline and any(child.process and child.ended() is None for child in self.children):
            time.sleep(0.02)
        for child in self.children:
            child.signal(signal.SIGKILL)
            if child.process is not None:
                child.process.wait()


def say(text: str) -> None:
    print(f"moorage: {text}", file=sys.stderr, flush=True)


def _child(plan: dict[str, Any]) -> Child:
    probe = plan.get("probe")
    return Child(plan["name"], plan["argv"], plan["env"], plan["says_ready"], (probe[0], probe[1]) if probe else None)


def main() -> None:
    """Read the plan that `moorage up` wrote, and carry it out."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    children = [_child(each) for each in plan["children"]]

    def on_ready(heard: dict[str, str]) -> None:
        url = plan["api_url"]
        if plan.get("is_edge"):
            print(f"ready: {url}", flush=True)
            return
        said = dict(line.split(" ", 1) for line in heard["control"].splitlines() if " " in line)
        print(f"open:  {url}/docs")
        if "setup" in said:
            print(f"owner: {url}/setup#{said['setup']}  (works once: it makes the first owner)")
        if "token" in said:
            print(f"try:   curl -H 'Authorization: Bearer {said['token']}' {url}/v1/me")
        if plan["metrics_port"] not in (0, USUAL_METRICS_PORT):
            print(f"watch: http://127.0.0.1:{plan['metrics_port']}/metrics")
        print(f"ready: {url}", flush=True)

    sys.exit(Supervisor(children, on_ready).run())


if __name__ == "__main__":
    main()
