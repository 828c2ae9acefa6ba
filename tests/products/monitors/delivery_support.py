"""A receiver of notices on loopback, and an organization with alerts that notify it."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from tests.builders import make_member, make_org, make_user
from tests.products.monitors.support import make_alert, make_monitor

from moorage.accounts.identity import notifications
from moorage.accounts.identity.notifications import Notification
from moorage.accounts.identity.organizations.service import Organization
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.users import User
from moorage.core.audit import service as audit
from moorage.core.db.query import Query, arg, columns, scalar
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane
from moorage.core.jobs.tables import job
from moorage.core.kit.clock import MINUTE_MS
from moorage.core.kit.ids import new_uuid
from moorage.core.mail.sender import Mailer
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import TargetPolicy
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import LEASE_MS, Worker
from moorage.core.worker.run import Handlers
from moorage.products.monitors.alerts import delivering, notices
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.alerts.delivering import Delivery
from moorage.products.monitors.alerts.messages import Observed
from moorage.products.monitors.alerts.tables import Alert, Incident, Notice, notice
from moorage.products.monitors.probing.beats import Certificate
from moorage.products.monitors.tables import Monitor

ALL = Query(select(*columns(notice)).where(notice.c.org_id == arg("org_id")).order_by(notice.c.id), Notice)
NEXT_DUE = Query(
    select(func.min(job.c.run_at)).where((job.c.lane == Lane.NOTICES.value) & (job.c.status == "queued")), scalar
)
START = 1_767_225_000_000
AGAIN_S = 6  # the first retry is due by then, with any jitter
SECRET_PATH = "/hooks/T0P-s3cret"
LOOPBACK = TargetPolicy(allow_loopback=True)


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def delivery(self) -> str:
        return self.headers["x-moorage-delivery"]

    @property
    def event(self) -> str:
        return str(self.json["event"])


@dataclass
class Receiver:
    """An HTTP server that records requests and gives the scripted responses, then 200.

    An answer is a status line with headers, or `hang` or `close`.
    """

    got: list[Received] = field(default_factory=list)
    answers: deque[str] = field(default_factory=deque)
    port: int = 0
    _server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{SECRET_PATH}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()

    def will(self, *answers: str) -> None:
        self.answers.extend(answers)

    @property
    def events(self) -> list[str]:
        return [each.event for each in self.got]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.got.append(await _read(reader))
            answer = self.answers.popleft() if self.answers else "200 OK"
            if answer == "hang":
                await reader.read()  # until the client gives up
            elif answer != "close":
                writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                await writer.drain()
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(first.split(" ")[1], headers, body)


@dataclass
class Harbor:
    """An organization with a monitor; the test delivers its notices step by step."""

    db: Database
    org: Organization
    owner: User
    monitor: Monitor
    client: GuardedClient = field(default_factory=lambda: GuardedClient(LOOPBACK, user_agent="Moorage-Alerts"))

    @property
    def org_id(self) -> int:
        return self.org.id

    async def alert(self, **fields: Any) -> Alert:
        """Create an alert, by default without mail."""
        return await make_alert(self.db, self, self.monitor, **{"by_email": False, **fields})

    async def member(self, role: Role = Role.MEMBER) -> User:
        return await make_member(self.db, self.org, role)

    async def begin(self, alert: Alert) -> Incident:
        """Start an incident without notices."""

        def unit(tx: Tx) -> Incident:
            values = {
                "uuid": new_uuid(), "org_id": self.org_id, "monitor_id": self.monitor.id, "alert_id": alert.id,
                "is_flapping": False, "observed": "{}", "started_at": START, "resolved_at": None,
            }  # fmt: skip
            return Incident(id=tx.one(alert_tables.ADD_INCIDENT, **values), **values)  # type: ignore[arg-type]

        return await self.db.write(unit)

    async def tell(self, alert: Alert, kind: str = "triggered", *, of: Incident | None = None) -> Incident:
        """Add the notices of an incident, by default of a new one."""
        incident = of or await self.begin(alert)
        await self.db.write(lambda tx: self.add(tx, alert, incident, kind))
        return incident

    def add(self, tx: Tx, alert: Alert, incident: Incident, kind: str = "triggered", message: str = "") -> list[Notice]:
        return notices.add(
            tx,
            self.org_id,
            monitor=self.monitor,
            alert=alert,
            incident=incident,
            about=incident.uuid,
            kind=kind,
            observed=observed(1.0 if kind == "resolved" else 0.0),
            message=message,
        )

    async def tell_certificate(self, certificate: Certificate) -> list[Notice]:
        about = f"certificate:{self.monitor.id}:{certificate.fingerprint}:7"
        return await self.db.write(
            lambda tx: notices.add(
                tx,
                self.org_id,
                monitor=self.monitor,
                alert=None,
                incident=None,
                about=about,
                kind="certificate",
                observed=observed(5.0),
                certificate=certificate,
            )
        )

    def worker(self, mailer: Mailer | None = None, *, client: GuardedClient | None = None) -> Worker:
        handlers = Handlers()
        sender = mailer or Mailer(self.db.env.settings)
        delivering.register(handlers, Delivery(self.db, client or self.client, sender))
        return Worker(self.db, handlers, Telemetry(quiet=True), lanes=(Lane.NOTICES,))

    async def deliver(self, mailer: Mailer | None = None, *, after_s: float = 0) -> None:
        """Advance the clock and run the jobs that are due."""
        self.db.env.clock.advance(int(after_s * 1000))  # type: ignore[attr-defined]
        await self.worker(mailer).run_due(turns=8)

    async def die_when(self, is_time: Callable[[], bool], mailer: Mailer | None = None) -> None:
        """Run due jobs in a worker that crashes, then let its lease expire."""
        worker = self.worker(mailer)
        working = asyncio.create_task(worker.run_due())
        while not is_time():
            await asyncio.sleep(0.005)
        await worker.stop(grace_s=0)
        await working
        self.db.env.clock.advance(LEASE_MS + 1)  # type: ignore[attr-defined]

    async def notices(self) -> list[Notice]:
        """Return all notices, oldest first."""
        return await self.db.read(lambda tx: tx.all(ALL, org_id=self.org_id))

    async def next_due(self) -> int | None:
        """Return the time of the next attempt of a notice."""
        due: int | None = await self.db.read(lambda tx: tx.find(NEXT_DUE))
        return due

    async def the_alert(self, alert: Alert) -> Alert:
        return await self.db.read(lambda tx: tx.one(alert_tables.FIND, org_id=self.org_id, id=alert.id))

    async def told(self, user: User) -> list[Notification]:
        """Return the notifications of a user, oldest first."""
        found = await self.db.read(lambda tx: notifications.all_of(tx, user.id))
        return [each for each in reversed(found) if each.kind.startswith(("alert", "certificate"))]

    async def actions(self) -> list[str]:
        feed = await self.db.read(lambda tx: audit.latest(tx, self.org_id, before=None, most=50))
        return [each.action for each in feed if each.action.startswith("alert.")]


async def statuses(harbor: Harbor) -> list[str]:
    return [each.status for each in await harbor.notices()]


async def make_harbor(db: Database, *, name: str = "Shop", url: str = "https://shop.example/health") -> Harbor:
    owner = await make_user(db)
    org = await make_org(db, owner)
    monitor = await make_monitor(db, _Org(org.id), name=name, url=url)
    return Harbor(db, org, owner, monitor)


@dataclass
class _Org:
    org_id: int


def observed(value: float | None, message: str = "connect: nothing listens there") -> Observed:
    return Observed(value=value, status_code=None, response_time=None, message=message, at=START + 5 * MINUTE_MS)
