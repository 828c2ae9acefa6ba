"""A project with analytics, and an access log in the gateway's format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from moorage.accounts.plans.service import Plan, Standing
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.telemetry import Telemetry
from moorage.products.analytics import tables
from moorage.products.analytics.counting import Consumer
from moorage.products.analytics.ingest import Ingest, find_own_host
from moorage.products.projects import service as projects
from moorage.products.projects.service import NewProject
from moorage.products.projects.tables import Project

BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:146.0) Gecko/20100101 Firefox/146.0"


async def make_project(
    db: Database, org_id: int = 1, name: str = "harbor", *, analytics: bool = True, slug: str = "static"
) -> Project:
    new = NewProject(name, slug, enable_analytics=analytics)
    standing = Standing(Plan.PRO, True)
    return await db.write(lambda tx: projects.create(tx, org_id, Actor(1, "Ada"), standing, new))


def make_ingest(db: Database, find_host: Any = find_own_host, also: Iterable[Consumer] = ()) -> Ingest:
    return Ingest(db, db.env.settings, Telemetry(quiet=True), find_host, also)


def line(at_ms: int, *, host: str = "harbor.localhost", uri: str = "/", ip: str = "203.0.113.9", **more: Any) -> str:
    """Return a line in the gateway's format.

    `status`, `size` and `seconds` are of the response, `agent` and `referer` of the request.
    """
    entry = {
        "ts": at_ms / 1000,
        "request": {
            "remote_ip": "127.0.0.1",
            "client_ip": ip,
            "proto": "HTTP/1.1",
            "method": "GET",
            "host": host,
            "uri": uri,
        },
        "bytes_read": 0,
        "duration": more.get("seconds", 0.003834757),
        "size": more.get("size", 6),
        "status": more.get("status", 200),
        "referer": more.get("referer", ""),
        "user_agent": more.get("agent", BROWSER),
    }
    return json.dumps(entry, separators=(",", ":")) + "\n"


class Log:
    """The access log of a test."""

    def __init__(self, db: Database) -> None:
        self.folder = db.env.settings.folder("logs")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "access.log"
        self.now = db.env.clock.now

    def write(self, *texts: str) -> None:
        with self.path.open("a") as file:
            file.writelines(texts)

    def visit(self, times: int = 1, *, ago_ms: int = 0, **what: Any) -> None:
        """Write identical lines."""
        self.write(line(self.now() - ago_ms, **what) * times)

    def rotate(self, tag: str = "2026-01-01T00-00-00.000-size") -> Path:
        return self.path.rename(self.folder / f"access-{tag}.log")


async def hours(db: Database, project: Project) -> list[tables.Hour]:
    return await db.read(lambda tx: tx.all(tables.HOURS, org_id=project.org_id, project_id=project.id, start=0))


async def requests(db: Database, project: Project) -> int:
    return sum(hour.requests for hour in await hours(db, project))


async def visitors(db: Database, project: Project) -> int:
    return sum(hour.newcomers for hour in await hours(db, project))


async def top(db: Database, project: Project, kind: str, most: int = 1000) -> dict[str, int]:
    its = {"org_id": project.org_id, "project_id": project.id, "kind": kind}
    return dict(await db.read(lambda tx: tx.all(tables.TOP, start=0, most=most, **its)))


def addresses(count: int) -> Iterator[str]:
    return (f"198.51.{number // 250}.{number % 250}" for number in range(count))
