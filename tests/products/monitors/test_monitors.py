"""Monitors through the API: inputs, outputs and permissions."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client import Client
from tests.conftest import RunJobs
from tests.products.monitors.support import (
    ADA,
    URL,
    Team,
    add_beats,
    fields_of,
    make_alert,
    make_monitor,
    make_team,
    read_alert,
    read_beats,
    read_monitor,
    set_state,
)

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Plan, Standing
from moorage.app import App
from moorage.core import jobs
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.dispatch import Dispatcher
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, ManualClock, to_wire
from moorage.core.telemetry import Telemetry
from moorage.core.vault import service as vault
from moorage.products.monitors import routes, service, tables
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.states import MONITOR
from moorage.products.monitors.tables import Pause
from moorage.products.projects import service as projects
from moorage.products.projects.service import NewProject

pytestmark = pytest.mark.anyio

GIVEN: dict[str, Any] = {
    "name": "Till", "url": "https://shop.example:8443/ping?deep=1", "interval": 30, "timeout": 60000, "retries": 10,
    "httpMethod": "POST", "statusCodes": ["2xx", "301-308", "404"], "keyword": "all well",
    "headers": [{"name": "X-Key", "value": "hush-hush"}, {"name": "Host", "value": "till.example"}],
    "httpBody": "{\"deep\": true}", "expireCertNotify": True, "ignoreTlsError": True, "public": True,
}  # fmt: skip


async def make_project(team: Team, name: str) -> int:
    new = NewProject(name=name, slug="static")
    made = await team.db.write(lambda tx: projects.create(tx, team.org_id, ADA, Standing(Plan.PRO, True), new))
    return made.id


async def pauses_of(team: Team, monitor_id: int) -> list[Pause]:
    return await team.db.read(lambda tx: tx.all(tables.PAUSES, org_id=team.org_id, id=monitor_id, since=0))


# Creation.


async def test_a_new_monitor_has_these_defaults(team: Team, clock: ManualClock) -> None:
    made = (await team.create()).data

    assert made == {
        "id": made["id"],
        "name": "Shop",
        "url": URL,
        "projectId": None,
        "organizationId": str(team.org_id),
        "interval": 60,
        "retries": 1,
        "timeout": 10000,
        "httpMethod": "GET",
        "status": "running",
        "statusCodes": ["200-299"],
        "keyword": None,
        "headers": [],
        "httpBody": None,
        "expireCertNotify": False,
        "ignoreTlsError": False,
        "public": False,
        "ssl": None,
        "createdAt": to_wire(clock.now()),
        "uptimePercent": None,
        "lastHeartbeat": None,
        "missedChecks": 0,
        "lagMs": None,
    }
    assert await team.read(made["id"]) == made
    assert (await team.get("")).data == [made]


async def test_everything_that_is_given_is_kept(team: Team) -> None:
    project_id = await make_project(team, "site")

    made = (await team.create(**GIVEN, projectId=project_id)).data

    read = await team.read(made["id"])
    assert {name: read[name] for name in GIVEN} == GIVEN
    assert read["projectId"] == project_id
    assert (await team.get("")).data == [read]


async def test_headers_and_bodies_are_kept_in_the_vault(team: Team, db: Database) -> None:
    made = (await team.create(**GIVEN)).data

    found = await read_monitor(db, team, made["id"])
    assert "hush-hush" not in repr(found)
    assert await db.read(lambda tx: set(vault.names(tx, team.org_id, found.resource))) == {"headers", "http_body"}
    assert await db.read(lambda tx: service.headers_of(tx, team.org_id, found)) == [
        ("X-Key", "hush-hush"),
        ("Host", "till.example"),
    ]
    assert await db.read(lambda tx: service.body_of(tx, team.org_id, found)) == GIVEN["httpBody"]


async def test_a_new_monitor_is_due_at_once(team: Team, db: Database, clock: ManualClock) -> None:
    made = (await team.create()).data

    found = await read_monitor(db, team, made["id"])
    assert (found.from_at, found.revision, found.prober) == (clock.now(), 1, None)


async def test_a_project_of_another_organization_is_not_found(team: Team, stranger: Team) -> None:
    theirs = await make_project(stranger, "theirs")

    replies = [await team.create(projectId=each) for each in (theirs, 999_999, 2**63, 10**30)]

    assert {(reply.status, reply.error["code"]) for reply in replies} == {(404, "not_found")}
    assert (await team.get("")).data == []


async def test_monitors_outlive_their_project(team: Team, db: Database) -> None:
    project_id = await make_project(team, "site")
    made = (await team.create(projectId=project_id)).data

    await db.write(lambda tx: projects.delete(tx, team.org_id, ADA, "site"))

    assert (await team.read(made["id"]))["projectId"] is None


@pytest.mark.settings(billing="manual")
async def test_a_plan_allows_so_many_monitors(app: App, db: Database) -> None:
    team = await make_team(app, db, plan=Plan.FREE)
    for number in range(10):
        await make_monitor(db, team, name=f"m{number}")

    reply = await team.create()

    assert (reply.status, reply.error["code"]) == (402, "quota_exceeded")


# Reads.


async def test_monitors_are_listed_newest_first_with_what_is_known_of_each(
    team: Team, db: Database, stranger: Team, clock: ManualClock
) -> None:
    quiet, busy = await make_monitor(db, team, name="Quiet"), await make_monitor(db, team, name="Busy", body="x")
    theirs = await make_monitor(db, stranger, name="Theirs")
    now = clock.now()
    await add_beats(db, busy, now - 2000, now - 1000)
    await add_beats(db, theirs, now)
    await set_state(db, busy, missed=3, lag_ms=12)

    listed = (await team.get("")).data

    assert [each["name"] for each in listed] == ["Busy", "Quiet"]
    assert listed[0] == await team.read(busy.id)
    assert listed[1] == await team.read(quiet.id)
    assert listed[0]["lastHeartbeat"] == {
        "status": "UP", "responseTime": 20, "message": "UP it is", "time": to_wire(now - 1000),
    }  # fmt: skip
    assert (listed[0]["missedChecks"], listed[0]["lagMs"], listed[0]["httpBody"]) == (3, 12, "x")
    assert listed[1]["lastHeartbeat"] is None


@pytest.mark.parametrize(("left_ms", "days"), [(DAY_MS, 1), (DAY_MS - 1, 0), (10 * DAY_MS + 5, 10), (-1, -1)])
async def test_a_certificate_is_told_with_the_whole_days_it_has_left(
    team: Team, db: Database, clock: ManualClock, left_ms: int, days: int
) -> None:
    found = await make_monitor(db, team, url="https://shop.example/")
    until = clock.now() + left_ms
    await set_state(
        db, found, ssl_subject="shop.example", ssl_issuer="Some CA", ssl_valid_to=until, ssl_fingerprint="f" * 64
    )

    read = await team.read(found.id)

    assert read["ssl"] == {
        "subject": "shop.example", "issuer": "Some CA", "validTo": to_wire(until), "daysUntilExpiry": days,
    }  # fmt: skip


async def test_heartbeats_come_newest_first_and_no_more_than_asked_for(
    team: Team, db: Database, clock: ManualClock
) -> None:
    found = await make_monitor(db, team)
    slots = [clock.now() - number * 1000 for number in range(1001)]
    await add_beats(db, found, *slots)
    await add_beats(db, found, clock.now() + 1000, status="DOWN")

    usual = (await team.get(f"/{found.id}/heartbeats")).data
    one = (await team.get(f"/{found.id}/heartbeats?limit=1")).data
    most = (await team.get(f"/{found.id}/heartbeats?limit=1000")).data

    assert (len(usual), len(one), len(most)) == (70, 1, 1000)
    assert one == [
        {"status": "DOWN", "responseTime": None, "message": "DOWN it is", "time": to_wire(clock.now() + 1000)}
    ]
    assert [beat["time"] for beat in most[1:]] == [to_wire(slot) for slot in slots[:999]]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("heartbeats?limit=0", "limit"), ("heartbeats?limit=1001", "limit"), ("heartbeats?limit=x", "limit"),
        ("incidents?limit=0", "limit"), ("incidents?limit=1001", "limit"),
        ("aggregate?hours=0", "hours"), ("aggregate?hours=2161", "hours"), ("aggregate?hours=1.5", "hours"),
    ],
)  # fmt: skip
async def test_what_is_asked_for_has_bounds(team: Team, db: Database, path: str, field: str) -> None:
    found = await make_monitor(db, team)

    assert set(fields_of(await team.get(f"/{found.id}/{path}"))) == {field}


# Changes.


async def test_what_is_sent_changes_and_the_rest_stays(team: Team, db: Database, clock: ManualClock) -> None:
    made = (await team.create(**GIVEN)).data
    clock.advance(MINUTE_MS)

    changed = (await team.patch(made["id"], name="Desk", interval=300)).data
    refused = await team.patch(made["id"], name="Shop", projectId=7, status="pause")

    assert changed == {**made, "name": "Desk", "interval": 300}
    assert set(fields_of(refused)) == {"projectId", "status"}
    found = await read_monitor(db, team, made["id"])
    assert (found.revision, found.updated_at, found.from_at) == (2, clock.now(), found.created_at)


async def test_every_field_can_be_changed(team: Team) -> None:
    made = (await team.create()).data

    changed = (await team.patch(made["id"], **GIVEN)).data

    assert {name: changed[name] for name in GIVEN} == GIVEN
    assert await team.read(made["id"]) == changed


async def test_null_removes_a_keyword_and_a_body_and_nothing_else(team: Team, db: Database) -> None:
    made = (await team.create(**GIVEN)).data
    others = sorted(set(GIVEN) - {"keyword", "httpBody"})

    cleared = (await team.patch(made["id"], keyword=None, httpBody=None, headers=[])).data
    refused = fields_of(await team.patch(made["id"], **dict.fromkeys(others)))

    assert (cleared["keyword"], cleared["httpBody"], cleared["headers"]) == (None, None, [])
    assert sorted(refused) == others
    found = await read_monitor(db, team, made["id"])
    assert await db.read(lambda tx: vault.names(tx, team.org_id, found.resource)) == []


async def test_headers_are_replaced_all_together(team: Team) -> None:
    made = (await team.create(**GIVEN)).data
    new = [{"name": "X-Other", "value": "1"}]

    changed = (await team.patch(made["id"], headers=new)).data

    assert (changed["headers"], changed["httpBody"]) == (new, GIVEN["httpBody"])


async def test_another_url_has_another_certificate(team: Team, db: Database, clock: ManualClock) -> None:
    found = await make_monitor(db, team, url="https://shop.example/")
    await set_state(db, found, ssl_subject="a", ssl_issuer="b", ssl_valid_to=clock.now(), ssl_fingerprint="c")

    same = (await team.patch(found.id, url="https://shop.example/", name="Other")).data
    changed = (await team.patch(found.id, url="https://other.example/")).data

    assert same["ssl"] is not None
    assert changed["ssl"] is None


# Pause and resume.


async def test_a_pause_is_one_heartbeat_and_may_be_asked_for_twice(
    team: Team, db: Database, clock: ManualClock
) -> None:
    made = (await team.create()).data
    began = clock.now()

    paused = (await team.post(f"/{made['id']}/pause")).data
    clock.advance(HOUR_MS)
    again = (await team.post(f"/{made['id']}/pause")).data

    beat = {"status": "PAUSE", "responseTime": None, "message": "paused", "time": to_wire(began)}
    assert paused == again == {**made, "status": "pause", "lastHeartbeat": beat}
    assert (await team.get(f"/{made['id']}/heartbeats")).data == [beat]
    assert [(each.began_at, each.ended_at) for each in await pauses_of(team, made["id"])] == [(began, None)]
    assert (await team.actions()).count("monitor.paused") == 1


async def test_a_monitor_that_is_resumed_is_due_at_once_and_may_be_resumed_twice(
    team: Team, db: Database, clock: ManualClock
) -> None:
    found = await make_monitor(db, team)
    await team.post(f"/{found.id}/pause")
    clock.advance(HOUR_MS)
    resumed_at = clock.now()

    resumed = (await team.post(f"/{found.id}/resume")).data
    clock.advance(HOUR_MS)
    again = (await team.post(f"/{found.id}/resume")).data

    row = await read_monitor(db, team, found.id)
    assert resumed["status"] == again["status"] == "running"
    assert (row.from_at, row.revision) == (resumed_at, 2)
    assert [each.ended_at for each in await pauses_of(team, found.id)] == [resumed_at]
    assert (await team.actions()).count("monitor.resumed") == 1


async def test_resuming_what_was_never_paused_changes_nothing(team: Team, db: Database, clock: ManualClock) -> None:
    found = await make_monitor(db, team)
    clock.advance(MINUTE_MS)

    await team.post(f"/{found.id}/resume")

    assert await read_monitor(db, team, found.id) == found


async def test_a_pause_in_the_millisecond_of_a_check_keeps_both_and_the_next_check_has_a_slot_of_its_own(
    team: Team, db: Database, clock: ManualClock
) -> None:
    found = await make_monitor(db, team)
    await add_beats(db, found, clock.now())

    await team.post(f"/{found.id}/pause")
    await team.post(f"/{found.id}/resume")

    beats = await read_beats(db, team, found.id)
    assert [beat.status for beat in beats] == ["PAUSE", "UP"]
    assert (await read_monitor(db, team, found.id)).from_at > beats[0].slot


async def test_alerts_of_a_paused_monitor_are_inactive_until_it_is_resumed(team: Team, db: Database) -> None:
    found = await make_monitor(db, team)
    watched = await make_alert(db, team, found)

    await team.post(f"/{found.id}/pause")
    during = (await read_alert(db, team, watched.id)).status
    await team.post(f"/{found.id}/resume")
    after = (await read_alert(db, team, watched.id)).status

    assert (during, after) == ("inactive", "active")


def test_a_monitor_moves_between_two_states() -> None:
    pairs = {(at, to) for at in MONITOR.states for to in MONITOR.states if at in MONITOR.sources(to)}

    assert pairs == {("running", "pause"), ("pause", "running")}


# Deletion.


async def test_a_deleted_monitor_is_gone_with_its_alerts_and_secrets(team: Team, db: Database) -> None:
    found = await make_monitor(db, team, headers=[("X-Key", "hush")], body="x")
    watched = await make_alert(db, team, found, slack="https://hooks.example/s", webhook="https://hooks.example/w")
    await add_beats(db, found, 1000)

    reply = await team.delete(found.id)

    def left(tx: Tx) -> list[Any]:
        return [
            tx.find(tables.FIND_STATE, org_id=team.org_id, id=found.id),
            tx.find(alert_tables.FIND, org_id=team.org_id, id=watched.id),
            *vault.names(tx, team.org_id, found.resource),
            *vault.names(tx, team.org_id, watched.resource),
        ]

    assert reply.data == {"deleted": True}
    assert (await team.get(f"/{found.id}")).status == 404
    assert (await team.get("")).data == []
    assert await db.read(left) == [None, None]
    assert (await team.delete(found.id)).status == 404


async def test_all_monitors_of_an_organization_go_with_it(
    team: Team, stranger: Team, db: Database, run_jobs: RunJobs
) -> None:
    for name in ("one", "two"):
        await make_alert(db, team, await make_monitor(db, team, name=name))
    theirs = await make_monitor(db, stranger)

    await db.write(lambda tx: jobs.add(tx, OrganizationDeleted(team.org_id)))
    await run_jobs()

    assert (await team.get("")).data == []
    assert [each["id"] for each in (await stranger.get("")).data] == [theirs.id]


# Permissions.


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("GET", "/heartbeats"),
        ("GET", "/aggregate"), ("GET", "/alerts"), ("GET", "/incidents"), ("POST", "/alerts"),
    ],
)  # fmt: skip
async def test_what_is_not_there_or_anothers_is_not_found(
    team: Team, stranger: Team, db: Database, method: str, path: str
) -> None:
    theirs = await make_monitor(db, stranger)
    body = {"metric": "status", "condition": "eq", "threshold": 0} if path == "/alerts" and method == "POST" else None
    body = {"name": "Mine"} if method == "PATCH" else body

    for wrong in (theirs.id, 999_999, "x", 0, 2**63):
        reply = await team.api.request(method, f"/v1/monitors/{wrong}{path}", token=team.tokens[Role.OWNER], json=body)
        assert (reply.status, reply.error["code"]) == (404, "not_found")

    assert await read_monitor(db, stranger, theirs.id) == theirs


async def test_viewers_read_and_members_write(team: Team, db: Database) -> None:
    found = await make_monitor(db, team)
    reads = ["", f"/{found.id}", f"/{found.id}/heartbeats", f"/{found.id}/aggregate", f"/{found.id}/incidents"]

    read = [(await team.get(path, Role.VIEWER)).status for path in reads]
    refused = [
        await team.create(role=Role.VIEWER),
        await team.patch(found.id, Role.VIEWER, name="x"),
        await team.post(f"/{found.id}/pause", Role.VIEWER),
        await team.post(f"/{found.id}/resume", Role.VIEWER),
        await team.delete(found.id, Role.VIEWER),
    ]
    done = [
        await team.create(role=Role.MEMBER),
        await team.patch(found.id, Role.MEMBER, name="x"),
        await team.post(f"/{found.id}/pause", Role.MEMBER),
        await team.post(f"/{found.id}/resume", Role.MEMBER),
        await team.delete(found.id, Role.MEMBER),
    ]

    assert set(read) == {200}
    assert [(reply.status, reply.error["code"]) for reply in refused] == [(403, "forbidden")] * 5
    assert [reply.status for reply in done] == [200] * 5


async def test_what_people_do_is_on_the_record_without_secrets(team: Team) -> None:
    made = (await team.create(**GIVEN)).data
    await team.patch(made["id"], headers=[{"name": "X-Key", "value": "other-secret"}], name="Desk")
    await team.post(f"/{made['id']}/pause")
    await team.post(f"/{made['id']}/resume")
    await team.delete(made["id"])

    feed = await team.api.get("/v1/activity", token=team.tokens[Role.OWNER])

    done = [item["action"] for item in feed.data["items"] if item["action"].startswith("monitor.")]
    assert sorted(done) == [
        "monitor.created", "monitor.deleted", "monitor.paused", "monitor.resumed", "monitor.updated",
    ]  # fmt: skip
    assert b"hush-hush" not in feed.body
    assert b"other-secret" not in feed.body


async def test_whoever_checks_is_woken_by_each_change_and_by_no_read(team: Team, app: App, db: Database) -> None:
    woken: list[str] = []
    router = routes.make_router(lambda: woken.append("up"))
    api = Client(Dispatcher(router.routes, db, app.asgi.gate, Telemetry(quiet=True)), token=team.tokens[Role.OWNER])

    made = (await api.post("/v1/monitors", json={"name": "Shop", "url": URL})).data["id"]
    path = f"/v1/monitors/{made}"
    counts = [len(woken)]
    for method, each, body in (
        ("GET", path, None), ("PATCH", path, {"interval": 30}), ("PATCH", path, {"interval": 1}),
        ("POST", f"{path}/pause", None), ("POST", f"{path}/resume", None), ("DELETE", path, None),
        ("DELETE", path, None),
    ):  # fmt: skip
        await api.request(method, each, json=body)
        counts.append(len(woken))

    assert counts == [1, 1, 2, 2, 3, 4, 5, 5]
