"""Lines that `moorage up` prints: progress, addresses, failures, and processes that keep running.

Imported by the supervisor, so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

USUAL_METRICS_PORT = 8083
DEFAULT_URL = "http://localhost:8080"  # of `moorage login`
SHOWN_LINES = 15


def print_message(text: str) -> None:
    print(f"moorage: {text}", file=sys.stderr, flush=True)


def print_progress(names: Sequence[str], elapsed_s: float) -> None:
    print(f"starting: {', '.join(names)} ({elapsed_s:.0f} s)", file=sys.stderr, flush=True)


def print_ready(plan: dict[str, Any], facts: dict[str, str]) -> None:
    """Print the addresses and a command to paste; `ready:` is the last line."""
    url = plan["api_url"]
    for warning in plan["warnings"]:
        print_message(f"warning: {warning}")
    if "part" not in plan:
        print(f"open:  {url}/")
        print(f"docs:  {url}/docs")
        if "setup" in facts:
            print(f"owner: {url}/setup#{facts['setup']}  (works once: it makes the first owner)")
        if "token_file" in facts:
            print(f"cli:   {command_name()} login {'' if url == DEFAULT_URL else f'{url} '}--demo")
            print(f"try:   export TOKEN=$(cat {shortest(Path(facts['token_file']))})")
            print(f'       curl -H "Authorization: Bearer $TOKEN" {url}/v1/me')
        if plan["metrics_port"] not in (0, USUAL_METRICS_PORT):
            print(f"watch: http://127.0.0.1:{plan['metrics_port']}/metrics")
        if sys.stderr.isatty():
            print(f"log:   {shortest(log_file(plan))}  (Ctrl-C stops the platform)")
    print(f"ready: {url}", flush=True)


def print_failure(plan: dict[str, Any], problem: str, *, started_at: float) -> None:
    """Print why the platform did not start, the last lines of its log, and the next step."""
    lines = last_lines(log_file(plan), since=started_at)
    print_message(f"{problem}; {'its last log lines:' if lines else 'its messages are above'}")
    for line in lines:
        print(f"  | {line}", file=sys.stderr)
    print("  next: moorage doctor checks this machine; then start again", file=sys.stderr, flush=True)


def print_stopping(plan: dict[str, Any]) -> None:
    """Print which processes Ctrl-C stops, and which keep running."""
    if part := plan.get("part"):
        print_message("stopping the edge and its functions" if part == "edge" else "stopping the gateway")
        return
    run = Path(plan["data"]) / "run"
    kept = [
        f"{count} {name}{'' if count == 1 else 's'}"
        for name, folder in (("app replica", "shims"), ("database server", "databases"))
        if (count := sum(1 for _ in (run / folder).glob("*/shim.sock")))
    ]
    stops = "stopping API, gateway, functions and builds"
    if kept:
        keeps = "keeps" if kept == ["1 app replica"] or kept == ["1 database server"] else "keep"
        print_message(f"{stops}; {' and '.join(kept)} {keeps} running, and the next start adopts them")
    else:
        print_message(f"{stops}; nothing keeps running")


def log_file(plan: dict[str, Any]) -> Path:
    return Path(plan["data"]) / "logs" / "control.log"


def last_lines(path: Path, *, since: float) -> list[str]:
    """Return the last lines of a log; none if it was not written since a time."""
    with contextlib.suppress(OSError):
        if path.stat().st_mtime >= since:
            with path.open(errors="replace") as file:
                return [line.rstrip()[:400] for line in deque(file, SHOWN_LINES)]
    return []


def command_name() -> str:
    """Return the command of this installation as a user types it here."""
    own = Path(sys.prefix) / "bin" / "moorage"
    return "moorage" if shutil.which("moorage") == str(own) else shortest(own)


def shortest(path: Path) -> str:
    """Return a path relative to the current folder if it is below, quoted for a shell."""
    with contextlib.suppress(OSError, ValueError):
        path = path.relative_to(Path.cwd()) if Path.cwd() != Path("/") else path
    text = str(path)
    return text if all(character.isalnum() or character in "/._-+~" for character in text) else f"'{text}'"


def activity(pid: int) -> int:
    """Return a number that grows while a process computes, reads or writes."""
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15]))  # CPU time of the process and of its ended children
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith(("rchar", "wchar")):
                total += int(line.partition(":")[2])
    return total


class Startup:
    """Watches children until all are ready. A slow machine only takes longer; a stuck child fails the start."""

    def __init__(self, *, interval_s: float = 2.0, stuck_s: float = 120.0, limit_s: float = 900.0) -> None:
        self.started_at = time.time()
        self._began = self._moved = time.monotonic()
        self._printed = self._began - interval_s / 2  # The first line comes earlier: imports took time before.
        self._interval_s, self._stuck_s, self._limit_s = interval_s, stuck_s, limit_s
        self._activity = 0

    def problem(self, late: dict[str, int]) -> str | None:
        """Print progress. Return why the start has failed, for the children that are not ready, by name and pid."""
        now = time.monotonic()
        if now - self._printed < self._interval_s:
            return None
        self._printed = now
        print_progress(list(late), now - self._began)
        seen = sum(activity(pid) for pid in late.values())
        if seen != self._activity:
            self._activity, self._moved = seen, now
        names = ", ".join(late)
        if now - self._moved > self._stuck_s:
            return f"{names} made no progress for {self._stuck_s:.0f} s"
        if now - self._began > self._limit_s:
            return f"not ready after {self._limit_s:.0f} s: {names}"
        return None
