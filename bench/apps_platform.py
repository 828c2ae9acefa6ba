"""A platform that runs apps: API calls, processes, and a complete shutdown.

Apps outlive the platform by design, so the benchmark has to stop them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import machine, processes, stores
from bench.function_platform import Refused, wait_until
from bench.projects import CALL_S, NOBODY, Harbor
from moorage.runtime.engines import wire
from moorage.runtime.sandbox.usage import process_tree

CONTROL = "moorage.platform.control_start"
GONE_S = 60.0  # An app may have 10 s to end, and all of them end at once.
SUCCEEDED = "succeeded"
_CONNECTED = "03"  # the state of a connection in /proc/net/unix


@dataclass(frozen=True)
class Shim:
    """The process that keeps an app."""

    key: str
    pid: int
    started: int

    @property
    def is_alive(self) -> bool:
        return process_tree.started(self.pid) == self.started

    def connections(self, sockets: set[str]) -> set[str]:
        """Return the given sockets that the process holds."""
        held = set()
        for entry in os.scandir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(OSError):  # closed since it was found
                held.add(os.readlink(entry.path).removeprefix("socket:[").removesuffix("]"))
        return held & sockets


@dataclass(frozen=True)
class Port(Harbor):
    """A running platform for apps."""

    pid: int

    @property
    def data(self) -> Path:
        return self.folder / "data"

    # API calls.

    def create(self, name: str, repository: str, language: str, tier: str) -> str:
        """Make an app, and return its deployment once it is live."""
        asked = {"slug": "container", "name": name, "language": language, "tier": {"key": tier}}
        made = self.call("POST", "/v1/projects", {**asked, "repositoryName": repository})
        return self.see_live(str(made["deploymentUuid"]))

    def deploy(self, name: str, operation: str = "deploy") -> str:
        asked = {"operation": operation}
        return str(self.call("POST", f"/v1/projects/{name}/deploy", asked)["deploymentUuid"])

    def see_live(self, uuid: str) -> str:
        """Return a deployment that has to succeed, when it has."""
        path = f"/v1/deployments/{uuid}/status"
        wait_until(lambda: bool(self.call("GET", path)["terminal"]), f"{uuid} ends", timeout_s=300, every_s=0.02)
        ended = self.call("GET", path)
        if ended["status"] != SUCCEEDED:
            raise Refused(f"{ended['projectName']} {ended['status']}: {ended['reason']}")
        return uuid

    def swaps(self, name: str) -> list[dict[str, Any]]:
        """Return the platform's own measurement of the swap between two releases."""
        items = self.call("GET", f"/v1/projects/{name}/deployments?limit=100")["items"]
        return [item["swap"] for item in items if item["swap"]]

    # Its processes.

    def control(self) -> int:
        """Return the id of the control process; raises NotReady while there is none."""
        for pid in process_tree.children(self.pid):
            with contextlib.suppress(OSError):
                if CONTROL in machine.command_of(pid):
                    return pid
        raise processes.NotReady("there is no control process")

    def shims(self) -> dict[str, Shim]:
        return {shim.key: shim for shim in shims_of(self.data) if shim.is_alive}


def shims_of(data: Path, kept: str = "shims") -> list[Shim]:
    """Return the shims that have written their identity file, also ended ones."""
    found = []
    for card in (data / "run" / kept).glob(f"*/{wire.IDENTITY_FILE}"):
        with contextlib.suppress(FileNotFoundError):
            told = json.loads(card.read_bytes())
            found.append(Shim(told["key"], told["pid"], told["started"]))
    return found


def shim_sockets() -> set[str]:
    """Return the inodes of all connections of shims to control processes."""
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {row[6] for row in rows if len(row) == 8 and row[5] == _CONNECTED and row[7] == wire.SOCKET}


@contextmanager
def running(folder: Path, *, seats: int = 1, **settings: object) -> Iterator[Port]:
    """Run the whole platform as a user would, on all cores; end it and all of its apps."""
    folder.mkdir(parents=True, exist_ok=True)
    db, taken = asyncio.run(stores.open_seated(folder / "data", seats))
    db.close()
    names = ("api_port", "gateway_port", "edge_port", "metrics_port")
    ports = dict(zip(names, processes.free_ports(len(names)), strict=True))
    common = {"rate_limit": stores.UNLIMITED, "log_format": "json", "log_level": "warning", "codehost_url": NOBODY}
    env = processes.environment(data=folder / "data", function_pool=0, **common, **ports, **settings)
    log = folder / "up.log"
    try:
        with processes.running([sys.executable, "-m", "moorage.cli.main", "up"], log, env) as process:
            assert process.stdout is not None
            processes.wait_for_line(process.stdout.fileno(), "ready: ", log)
            tokens = [seat.token for seat in taken]
            yield Port(ports["api_port"], ports["gateway_port"], tokens, folder, process.pid)
    finally:
        for kept in ("shims", "databases", "cronjobs"):
            end_all(folder / "data", kept)


def end_all(data: Path, kept: str = "shims") -> None:
    """End every app or database that a platform has left running, and wait until nothing of them is left."""
    give_up_at = time.monotonic() + GONE_S
    told: set[int] = set()
    while folders := list((data / "run" / kept).glob("*")):
        for shim in shims_of(data, kept):
            if not shim.is_alive:
                shutil.rmtree(data / "run" / kept / shim.key, ignore_errors=True)
            elif shim.pid not in told:
                told.add(shim.pid)
                os.kill(shim.pid, signal.SIGTERM)
        if time.monotonic() > give_up_at:
            raise processes.NotReady(f"these did not end: {[each.name for each in folders]}")
        time.sleep(0.05)


@dataclass(frozen=True)
class Work:
    """A clone of a repository on the platform."""

    port: Port
    folder: Path
    seat: int = 0

    @property
    def repository(self) -> str:
        """The whole name of the repository: the first part is its organization's."""
        [owner] = self.port.call("GET", "/v1/orgs", seat=self.seat)
        return f"{owner['slug']}/{self.folder.name}"

    def push(self, files: Mapping[str, str]) -> None:
        """Commit these files, and send them; the repository is made by the first push."""
        if not self.folder.exists():
            self.folder.mkdir()
            self._git("init", "--quiet", "--initial-branch=main")
        for name, content in files.items():
            (self.folder / name).write_text(content)
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message=all")
        at = f"127.0.0.1:{self.port.api_port}/git/{self.repository}.git"
        self._git("push", "--quiet", f"http://x:{self.port.tokens[self.seat]}@{at}", "main")

    def _git(self, *words: str) -> None:
        done = subprocess.run(
            ["git", *words], cwd=self.folder, env=self._environment(), capture_output=True, timeout=CALL_S
        )
        if done.returncode != 0:
            raise Refused(f"git {words[0]}: {done.stderr.decode(errors='replace')}")

    def _environment(self) -> dict[str, str]:
        """Environment of git, without the user's configuration."""
        someone = {f"GIT_{role}_{what}": "bench" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        quiet = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder.parent), **quiet, **someone}
