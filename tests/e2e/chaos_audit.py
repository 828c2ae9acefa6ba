"""The audit after a chaos story: what was acknowledged and is gone, is there twice, never ended, or was left over."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.chaos_kills import all_pids
from tests.e2e.projects_support import is_alive

from moorage.products.repositories.storage import Storage
from moorage.runtime.workers.main import token_of
from moorage.settings import Settings

CGROUPS = Path("/sys/fs/cgroup")
# Folders of work in progress: empty when nothing is under way.
WORK_FOLDERS = ("builds", "uploads")
UNFINISHED = re.compile(r"(^|[.-])(tmp|partial|incoming|new)([.-]|$)")


@dataclass
class Audit:
    """Findings, each a sentence; all four lists have to be empty."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)

    def compare(self, what: str, acknowledged: Iterable[Any], found: Iterable[Any], *, exactly: bool = True) -> None:
        """Hold what was acknowledged against what there is; `exactly` means that there is nothing else."""
        expected, counts = set(acknowledged), Counter(found)
        self.lost += [f"{what} {each}" for each in sorted(expected - set(counts), key=str)]
        self.doubled += [f"{what} {each}: {count} times" for each, count in counts.items() if count > 1]
        if exactly:
            self.doubled += [f"{what} {each}, never acknowledged" for each in sorted(set(counts) - expected, key=str)]

    def report(self, wrong: Iterable[str]) -> str:
        """Return every finding on a line of its own, with answers that no request should get."""
        named = [(name, each) for name in ("lost", "doubled", "stuck", "leaked") for each in getattr(self, name)]
        return "\n".join(f"{name}: {each}" for name, each in (*named, *(("wrong", each) for each in wrong)))

    def figures(self) -> dict[str, int]:
        return {name: len(getattr(self, name)) for name in ("lost", "doubled", "stuck", "leaked")}


@contextlib.contextmanager
def store_of(data: Path) -> Iterator[sqlite3.Connection]:
    address = f"file:{data / 'store' / 'moorage.db'}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=30)) as store:
        yield store


def rows(data: Path, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with store_of(data) as store:
        return store.execute(query, values).fetchall()


def unfinished(data: Path) -> list[str]:
    """Return the work that has not ended: jobs that are due, deployments, runs, and claims of idempotency keys."""
    now = int(time.time() * 1000)
    found = [
        f"job {id_} ({kind}) is {status} since {(now - updated) // 1000} s"
        for id_, kind, status, updated in rows(
            data,
            "SELECT id, kind, status, updated_at FROM job"
            " WHERE status = 'running' OR (status = 'queued' AND run_at < ?)",
            now - 5_000,
        )
    ]
    found += [
        f"deployment {uuid} is {status}"
        for uuid, status in rows(
            data, "SELECT uuid, status FROM deployment WHERE status NOT IN ('succeeded', 'failed')"
        )
    ]
    found += [
        f"execution {uuid} is {status}"
        for uuid, status in rows(
            data, "SELECT uuid, status FROM cronjob_execution WHERE status NOT IN ('succeeded', 'failed')"
        )
    ]
    found += [
        f"idempotency key {key} of {route} has no answer"
        for key, route in rows(data, "SELECT key, route FROM idempotency_key WHERE status IS NULL")
    ]
    found += [
        f"database {name} is {status}"
        for name, status in rows(data, "SELECT name, status FROM database WHERE status != 'running'")
    ]
    return found


def failed_jobs(data: Path) -> list[str]:
    query = "SELECT id, kind, last_error FROM job WHERE status = 'failed'"
    return [f"job {id_} ({kind}) failed: {error}" for id_, kind, error in rows(data, query)]


def leftover_files(data: Path) -> list[str]:
    """Return the files of work that nobody does any more."""
    found = [path for name in WORK_FOLDERS if (data / name).exists() for path in (data / name).iterdir()]
    for folder, folders, files in os.walk(data):
        if Path(folder) in (data / "databases", data / "engines", data / "run"):
            folders.clear()
            continue
        found += [Path(folder) / name for name in files if UNFINISHED.search(name)]
        # A folder for unfinished work stays, and is empty.
        found += [path for name in folders if UNFINISHED.search(name) for path in (Path(folder) / name).iterdir()]
    return sorted({str(path.relative_to(data)) for path in found})


def sweep_transfers(data: Path) -> None:
    """Do what the platform does every hour with the files of pushes and fetches that ended hours ago."""
    then = time.time() - 3 * 3600
    for path in (data / "git" / "incoming").iterdir():
        os.utime(path, (then, then), follow_symlinks=False)
    settings = Settings(_env_file=None, data=data)
    Storage(settings).clear_stale(time.time_ns() // 1_000_000)


def mounts_of(data: Path) -> list[str]:
    """Return the mounts of the machine that are in a data folder."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if str(data) in line]


def cgroups_of(data: Path) -> list[str]:
    """Return the cgroups of cells of a platform."""
    prefix = f"moorage-{token_of(data)}-"
    return [str(path) for path in CGROUPS.rglob(f"{prefix}*") if path.is_dir()]


def run_cgroups_of(pids: Iterable[int]) -> list[str]:
    """Return the cgroups of runs whose first process has ended, out of some that were seen."""
    seen = {str(pid) for pid in pids if not is_alive(pid)}
    named = (path for path in CGROUPS.rglob("moorage-run-*") if path.is_dir())
    return [str(path) for path in named if seen.intersection(re.findall(r"\d+", path.name))]


def processes_of(data: Path) -> dict[int, str]:
    """Return the processes of a platform and of everything that it started, each with what ties it to the folder."""
    found: dict[int, str] = {}
    text = str(data).encode()
    for pid in all_pids():
        if pid == os.getpid() or not is_alive(pid):
            continue
        for name in ("cmdline", "environ", "mountinfo"):
            with contextlib.suppress(OSError):
                if text in Path(f"/proc/{pid}/{name}").read_bytes():
                    found.setdefault(pid, name)
        with contextlib.suppress(OSError):
            if str(data) in os.readlink(f"/proc/{pid}/cwd"):
                found.setdefault(pid, "cwd")
    return found
