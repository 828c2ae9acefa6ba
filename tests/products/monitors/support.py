"""Builders of organizations with monitors, alerts and checks, through the API or the database."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from tests.builders import make_member, make_org, make_token, make_user
from tests.client import Client, Reply

from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Plan, Standing
from moorage.app import App
from moorage.core.audit.service import Actor
from moorage.core.db.query import Command
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import SECOND_MS
from moorage.core.vault import service as vault
from moorage.products.monitors import service, tables
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.alerts.tables import SLACK_WEBHOOK, WEBHOOK_URL, Alert
from moorage.products.monitors.probing.beats import Beat, Certificate, Outcome, Phase
from moorage.products.monitors.service import NewMonitor
from moorage.products.monitors.states import AlertStatus
from moorage.products.monitors.tables import Heartbeat, Monitor, State

ADA = Actor(1, "Ada")
URL = "http://127.0.0.1:9/health"


class HasOrg(Protocol):
    """Any object with an organization id."""

    @property
    def org_id(self) -> int: ...


@dataclass
class Team:
    app: App
    api: Client
    db: Database
    org_id: int
    slug: str
    tokens: dict[Role, str]

    async def create(self, name: str = "Shop", role: Role = Role.OWNER, **given: Any) -> Reply:
        """Create a monitor; fields that are None are omitted."""
        body = {key: value for key, value in {"name": name, "url": URL, **given}.items() if value is not None}
        return await self.post("", role, json=body)

    async def get(self, path: str, role: Role = Role.MEMBER) -> Reply:
        return await self.api.get(f"/v1/monitors{path}", token=self.tokens[role])

    async def post(self, path: str, role: Role = Role.OWNER, **options: Any) -> Reply:
        return await self.api.post(f"/v1/monitors{path}", token=self.tokens[role], **options)

    async def patch(self, monitor_id: int, role: Role = Role.OWNER, /, **body: Any) -> Reply:
        return await self.api.patch(f"/v1/monitors/{monitor_id}", token=self.tokens[role], json=body)

    async def delete(self, monitor_id: int, role: Role = Role.OWNER) -> Reply:
        return await self.api.delete(f"/v1/monitors/{monitor_id}", token=self.tokens[role])

    async def read(self, monitor_id: int) -> Any:
        return (await self.get(f"/{monitor_id}")).data

    async def alert(self, method: str, path: str, role: Role = Role.OWNER, /, **body: Any) -> Reply:
        """Call a route of alerts: `await team.alert("PATCH", f"/{alert_id}", enabled=False)`."""
        return await self.api.request(method, f"/v1/alerts{path}", token=self.tokens[role], json=body or None)

    async def actions(self) -> list[str]:
        reply = await self.api.get("/v1/activity", token=self.tokens[Role.OWNER])
        return [item["action"] for item in reply.data["items"]]


async def make_team(app: App, db: Database, *, name: str = "Harbor", plan: Plan = Plan.PRO) -> Team:
    owner = await make_user(db)
    org = await make_org(db, owner, name=name, plan=plan)
    tokens = {Role.OWNER: await make_token(db, owner, org.id)}
    for role in (Role.VIEWER, Role.MEMBER, Role.ADMIN):
        tokens[role] = await make_token(db, await make_member(db, org, role), org.id)
    return Team(app, Client(app.asgi), db, org.id, org.slug, tokens)


async def make_monitor(
    db: Database,
    team: HasOrg,
    *,
    name: str = "Shop",
    url: str = URL,
    codes: list[str] | None = None,
    headers: list[tuple[str, str]] | None = None,
    body: str | None = None,
    **fields: Any,
) -> Monitor:
    """Create a monitor without the API. `fields` are those of `NewMonitor`."""
    if codes is not None:
        fields["status_codes"] = json.dumps(codes)
    new = NewMonitor(name=name, url=url, **fields)
    standing = Standing(Plan.PRO, True)
    return await db.write(
        lambda tx: service.create(tx, team.org_id, ADA, standing, new, headers=headers or [], body=body)
    )


async def make_alert(
    db: Database,
    team: HasOrg,
    monitor: Monitor,
    *,
    slack: str | None = None,
    webhook: str | None = None,
    **fields: Any,
) -> Alert:
    """Create an alert without the API: on downtime, by mail. `fields` are columns.

    `slack` and `webhook` are addresses and enable their channels.
    """
    usual: dict[str, Any] = {
        "metric": "status", "condition": "eq", "threshold": 0.0, "duration_min": 1, "severity": "warning",
        "by_email": True, "by_slack": slack is not None, "by_webhook": webhook is not None, "slack_off": None,
        "webhook_off": None, "status": AlertStatus.ACTIVE if monitor.is_running else AlertStatus.INACTIVE,
        "is_enabled": True, "acknowledged": False, "last_triggered_at": None, "pending_since": None,
        "good_samples": 0, "good_since": None, "fired_at": "[]", "is_flapping": False, "incident_id": None,
    }  # fmt: skip

    def unit(tx: Tx) -> Alert:
        values = {**usual, **fields, "created_at": tx.now, "updated_at": tx.now}
        alert_id = tx.one(alert_tables.ADD, **values, org_id=team.org_id, monitor_id=monitor.id)
        made = tx.find(alert_tables.FIND, org_id=team.org_id, id=alert_id)
        assert made is not None
        for name, target in ((SLACK_WEBHOOK, slack), (WEBHOOK_URL, webhook)):
            if target is not None:
                vault.put(tx, team.org_id, made.resource, name, target)
        return made

    return await db.write(unit)


def make_beat(
    monitor: Monitor,
    slot: int,
    *,
    up: bool = True,
    message: str | None = None,
    response_ms: int | None = 20,
    code: int | None = None,
    phase: Phase | None = None,
    certificate: Certificate | None = None,
    lag_ms: int = 3,
    missed: int = 0,
) -> Beat:
    """Return the result of a check: a good response, or with `up=False` a server error."""
    said = code if code is not None else 200 if up else 500
    outcome = Outcome(
        is_up=up,
        message=message if message is not None else "200 OK" if up else "status: 500 is not among 200-299",
        response_ms=response_ms,
        code=said,
        phase=phase if phase is not None else None if up else "status",
        certificate=certificate,
    )
    return Beat(monitor.org_id, monitor.id, slot, slot + lag_ms, outcome, lag_ms, missed)


async def read_monitor(db: Database, team: HasOrg, monitor_id: int) -> Monitor:
    return await db.read(lambda tx: service.get(tx, team.org_id, monitor_id))


async def read_state(db: Database, team: HasOrg, monitor_id: int) -> State:
    return await db.read(lambda tx: tx.one(tables.FIND_STATE, org_id=team.org_id, id=monitor_id))


async def read_alert(db: Database, team: HasOrg, alert_id: int) -> Alert:
    return await db.read(lambda tx: tx.one(alert_tables.FIND, org_id=team.org_id, id=alert_id))


async def read_beats(db: Database, team: HasOrg, monitor_id: int) -> list[Heartbeat]:
    """Return the heartbeats of a monitor, newest first."""
    return await db.read(lambda tx: tx.all(tables.HEARTBEATS, org_id=team.org_id, id=monitor_id, most=10_000))


async def add_beats(db: Database, monitor: Monitor, *slots: int, status: str = "UP", response_ms: int = 20) -> None:
    """Add heartbeats to the database, without roll-ups and alerts."""
    rows = [
        {
            "org_id": monitor.org_id, "monitor_id": monitor.id, "slot": slot, "at": slot, "status": status,
            "response_ms": response_ms if status == "UP" else None, "code": 200, "message": f"{status} it is",
        }
        for slot in slots
    ]  # fmt: skip
    await db.write(lambda tx: tx.run_many(service.ADD_BEAT, rows))


async def set_state(db: Database, monitor: Monitor, **values: Any) -> None:
    """Set columns of the state of a monitor."""
    command = Command(tables.state.update().where(tables.state.c.monitor_id == monitor.id).values(values))
    await db.write(lambda tx: tx.run(command))


def seconds(count: float) -> int:
    return int(count * SECOND_MS)


def fields_of(reply: Reply) -> dict[str, str]:
    """Return the field errors of a rejected request."""
    assert (reply.status, reply.error["code"]) == (400, "bad_request"), reply.body
    return dict(reply.error["fields"])
