"""Sources of log lines of a project: its app, its deployments, and cronjobs of its repository.

Functions and schedules belong to no project in the API, so they are not among them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from moorage.cli.output.words import parsed
from moorage.client import ApiError, Client, ClientError, Unreachable, models
from moorage.client.exchange import Call, path_part

POLL_S: Final = 3.0  # between looks for new deployments and runs
RECENT: Final = 5  # deployments or runs that are looked at
MAX_RETRY_S: Final = 30.0
MAX_CRONJOBS: Final = 50  # whose repository is compared
FINAL: Final = frozenset(("succeeded", "failed"))


class Line(msgspec.Struct):
    """One line of output; `source` is `app`, `deployment 1f0c8a2b`, or `cronjob NAME`."""

    timestamp: str
    source: str
    stream: str
    message: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A message of this command about a source."""

    text: str


Item = Line | Notice | ClientError


@dataclass(slots=True)
class Filter:
    """Lines to show: from a moment on, and with a text in any case."""

    since: datetime | None = None
    search: str | None = None

    def accepts(self, line: Line) -> bool:
        if self.search is not None and self.search.lower() not in line.message.lower():
            return False
        return self.is_recent(line.timestamp)

    def is_recent(self, timestamp: str | None) -> bool:
        moment = parsed(timestamp)
        return self.since is None or moment is None or moment >= self.since


def linked_cronjobs(client: Client, project: models.ProjectDetail) -> list[str]:
    """Return the cronjobs that are built from the repository of a project."""
    if not project.repository_name:
        return []
    names = [each.name for each in client.cronjobs.list(page_size=MAX_CRONJOBS).items if each.name]
    if not names:
        return []
    with ThreadPoolExecutor(max_workers=8) as pool:
        details = pool.map(client.cronjobs.read, names)
        return [each.name for each in details if each.name and each.repository_name == project.repository_name]


def history(client: Client, project: models.ProjectDetail, wanted: Filter, tail: int, since: str | None) -> list[Line]:
    """Return lines that exist: the newest of the app, and with `since` all of later deployments and cronjob runs."""
    page = client.projects.read_app_logs(project.name, since=since, search=wanted.search, limit=tail)
    lines = [Line(each.timestamp, "app", each.stream, each.message) for each in page.items]
    if since is not None:
        lines += _deployment_history(client, project, wanted)
        for name in linked_cronjobs(client, project):
            lines += _cronjob_history(client, name, wanted)
    return sorted(lines, key=lambda line: line.timestamp)


def _deployment_history(client: Client, project: models.ProjectDetail, wanted: Filter) -> Iterable[Line]:
    for each in client.deployments.list(project.name, limit=RECENT).items:
        if each.status in FINAL and wanted.is_recent(each.updated_at):
            for event in client.deployments.follow(each.deployment_uuid):
                line = _line(f"deployment {each.deployment_uuid[:8]}", event.data)
                if event.name == "log" and wanted.accepts(line):
                    yield line


def _cronjob_history(client: Client, name: str, wanted: Filter) -> Iterable[Line]:
    for run in client.cronjobs.list_executions(name, page_size=RECENT).items:
        if run.status in FINAL and wanted.is_recent(run.created_at):
            for each in client.cronjobs.read_execution_logs(run.execution_uuid).lines:
                line = Line(each.timestamp, f"cronjob {name}", each.stream, each.message)
                if wanted.accepts(line):
                    yield line


def _line(source: str, data: Any) -> Line:
    return Line(str(data.get("timestamp", "")), source, str(data.get("stream", "")), str(data.get("message", "")))


@dataclass(slots=True)
class Follower:
    """Follows all sources of a project at once; each stream has a thread, and resumes after lost connections."""

    client: Client
    project: models.ProjectDetail
    wanted: Filter
    tail: int
    items: queue.Queue[Item] = field(default_factory=queue.Queue)
    _known: set[str] = field(default_factory=set)  # streams that were started

    def start(self) -> None:
        call = Call("GET", f"/v1/projects/{path_part(self.project.name)}/logs/stream", query={"tail": self.tail})
        self._spawn(lambda: self._pump("app", call))
        self._spawn(self._watch)

    def _spawn(self, work: Callable[[], None]) -> None:
        threading.Thread(target=self._guarded, args=(work,), daemon=True).start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except ClientError as error:
            self.items.put(error)

    def _pump(self, source: str, call: Call) -> None:
        """Put the lines of a stream into the queue until its end; after a lost connection, go on where it was."""
        last_id: str | None = None
        lost = 0
        while True:
            try:
                for event in self.client.transport.follow(call, last_id=last_id):
                    last_id, lost = event.id or last_id, 0
                    if event.name == "log":
                        self.items.put(_line(source, event.data))
                return
            except Unreachable as error:
                lost += 1
                self.items.put(Notice(f"{source}: connection lost ({error.reason}), trying again"))
                time.sleep(min(2.0**lost, MAX_RETRY_S))

    def _watch(self) -> None:
        """Start a stream for each deployment and each run of a linked cronjob that begins."""
        cronjobs = linked_cronjobs(self.client, self.project)
        is_first = True
        while True:
            try:
                self._look(cronjobs, is_first=is_first)
                is_first = False
            except (Unreachable, ApiError) as error:
                if isinstance(error, ApiError) and error.status < 500:
                    raise
            time.sleep(POLL_S)

    def _look(self, cronjobs: list[str], *, is_first: bool) -> None:
        for each in self.client.deployments.list(self.project.name, limit=RECENT).items:
            uuid = each.deployment_uuid
            path = f"/v1/deployments/{path_part(uuid)}/logs/stream"
            self._begin(uuid, f"deployment {uuid[:8]}", path, each.status, each.updated_at, is_first=is_first)
        for name in cronjobs:
            for run in self.client.cronjobs.list_executions(name, page_size=RECENT).items:
                uuid = run.execution_uuid
                path = f"/v1/cronjobs/executions/{path_part(uuid)}/logs/stream"
                self._begin(uuid, f"cronjob {name}", path, run.status, run.updated_at, is_first=is_first)

    def _begin(self, uuid: str, source: str, path: str, status: str, at: str | None, *, is_first: bool) -> None:
        if uuid in self._known:
            return
        self._known.add(uuid)
        is_past = is_first and status in FINAL and (self.wanted.since is None or not self.wanted.is_recent(at))
        if not is_past:
            self._spawn(lambda: self._pump(source, Call("GET", path)))
