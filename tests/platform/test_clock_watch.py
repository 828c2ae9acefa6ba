"""The clock watch notices steps of the clock; a wrong clock neither deletes early nor holds things for ever."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import Table, insert, select
from tests.builders import make_org, make_token, make_user
from tests.client import Client

from moorage.accounts.identity.organizations import freed_names
from moorage.accounts.identity.organizations.freed_names import NameKind
from moorage.accounts.identity.sessions import service as session_list
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.accounts.identity.tables import login_session
from moorage.accounts.identity.users import User
from moorage.app import App
from moorage.core import maintenance
from moorage.core.db import snapshots
from moorage.core.db.query import Query, arg, scalar
from moorage.core.db.snapshots import store_path
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, ManualClock
from moorage.core.telemetry import Telemetry
from moorage.platform.clock import future_times
from moorage.platform.clock.watch import ClockWatch
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

YEAR_MS = 365 * DAY_MS


@dataclass
class Machine:
    """A machine whose time passes when the test says so, and whose clock can be set."""

    db: Database
    clock: ManualClock
    steady: int = 5 * HOUR_MS
    boot: str = "first"

    def watch(self) -> ClockWatch:
        return ClockWatch(self.db, Telemetry(quiet=True), steady=lambda: self.steady, boot=self.boot)

    async def started(self) -> ClockWatch:
        watch = self.watch()
        await watch.start()
        return watch

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.steady += ms

    def reboot(self, down_ms: int = MINUTE_MS) -> None:
        self.clock.advance(down_ms)
        self.steady, self.boot = 0, self.boot + "+"


@pytest.fixture
def machine(db: Database, clock: ManualClock) -> Machine:
    return Machine(db, clock)


async def log_in(db: Database, user: User) -> str:
    return await db.write(lambda tx: session_list.log_in(tx, Sessions(db.env), user.id, device="test"))


def warnings(logged: Any) -> list[str]:
    return [line["event"] for line in logged if line["log_level"] == "warning"]


@pytest.mark.parametrize(("step_ms", "event"), [(HOUR_MS, "forward"), (-HOUR_MS, "back")])
async def test_a_step_of_the_clock_is_logged_and_counted_and_others_are_told(
    machine: Machine, clock: ManualClock, step_ms: int, event: str
) -> None:
    watch, told = await machine.started(), []
    watch.on_step.append(lambda: told.append(True))
    machine.pass_time(SECOND_MS)

    with structlog.testing.capture_logs() as logged:
        before = await watch.check()
        clock.advance(step_ms)
        machine.pass_time(SECOND_MS)
        found = await watch.check()
        machine.pass_time(SECOND_MS)
        after = await watch.check()

    assert (before, found, after) == (0, step_ms, 0)
    assert warnings(logged) == [f"the clock was set {event}"]
    assert logged[0]["by_s"] == abs(step_ms) / 1000
    assert told == [True]


async def test_a_clock_that_runs_evenly_is_trusted_whatever_the_pauses_are(machine: Machine) -> None:
    watch = await machine.started()

    with structlog.testing.capture_logs() as logged:
        for pause_ms in (SECOND_MS, 30 * DAY_MS, 1):
            machine.pass_time(pause_ms)
            await watch.check()

    assert logged == []
    assert machine.clock.trusted_now() == machine.clock.now()


async def test_after_a_step_forward_ages_count_as_before_for_a_day(machine: Machine, clock: ManualClock) -> None:
    watch, began = await machine.started(), clock.now()

    clock.advance(YEAR_MS)
    await watch.check()
    at_once = clock.trusted_now()
    machine.pass_time(DAY_MS - 1)
    await watch.check()
    later = clock.trusted_now()
    machine.pass_time(1)
    await watch.check()

    assert at_once == began
    assert later == began + DAY_MS - 1
    assert clock.trusted_now() == clock.now()


async def test_a_step_back_takes_back_the_distrust(machine: Machine, clock: ManualClock) -> None:
    watch = await machine.started()
    clock.advance(YEAR_MS)
    await watch.check()

    clock.advance(-YEAR_MS)
    await watch.check()

    assert clock.distrusted_ms == 0


@pytest.mark.parametrize("is_rebooted", [False, True])
async def test_the_distrust_outlasts_a_restart(machine: Machine, clock: ManualClock, is_rebooted: bool) -> None:
    watch = await machine.started()
    clock.advance(YEAR_MS)
    await watch.check()
    clock.distrusted_ms = 0  # Another process has another object.
    if is_rebooted:
        machine.reboot()
    else:
        machine.pass_time(10 * MINUTE_MS)

    again = await machine.started()
    during = clock.distrusted_ms
    machine.pass_time(DAY_MS)
    await again.check()

    assert during == YEAR_MS
    assert clock.distrusted_ms == 0


@pytest.mark.parametrize("is_rebooted", [False, True])
async def test_a_clock_that_was_set_while_nothing_ran_is_noticed_at_the_start(
    machine: Machine, clock: ManualClock, is_rebooted: bool
) -> None:
    await machine.started()
    if is_rebooted:
        machine.reboot()
    clock.advance(YEAR_MS)

    with structlog.testing.capture_logs() as logged:
        await machine.started()
        ahead = clock.distrusted_ms
        clock.advance(-YEAR_MS)
        await machine.started()

    assert len(warnings(logged)) == 2
    assert ahead >= YEAR_MS
    assert clock.distrusted_ms <= MINUTE_MS


async def test_a_sweep_with_a_clock_ahead_deletes_nothing_that_is_younger_than_its_retention(
    machine: Machine, api: Client, app: App, clock: ManualClock
) -> None:
    db = machine.db
    watch, user = await machine.started(), await make_user(db)
    org = await make_org(db, user)
    session = await log_in(db, user)
    await db.write(lambda tx: freed_names.reserve(tx, org.id, NameKind.PROJECT, "pier"))
    clock.advance(YEAR_MS)
    await watch.check()

    await db.write(lambda tx: maintenance.sweep(tx, maintenance.Sweep()))
    refused = await api.get("/v1/me", token=session)
    resting = await db.read(lambda tx: freed_names.is_reserved(tx, org.id + 1, NameKind.PROJECT, "pier"))
    clock.advance(-YEAR_MS)
    await watch.check()

    assert refused.status == 401
    assert resting
    assert (await api.get("/v1/me", token=session)).status == 200


async def test_a_sweep_deletes_what_is_old_once_the_clock_is_trusted_again(
    machine: Machine, app: App, clock: ManualClock
) -> None:
    watch, user = await machine.started(), await make_user(machine.db)
    await log_in(machine.db, user)
    clock.advance(YEAR_MS)
    await watch.check()
    machine.pass_time(DAY_MS)
    await watch.check()

    await machine.db.write(lambda tx: maintenance.sweep(tx, maintenance.Sweep()))

    assert await machine.db.read(lambda tx: tx.all(Query(select(login_session.c.id), scalar))) == []


@pytest.mark.boundary(
    "stranger-to-platform", "A session token that a wrong clock issued in the future is refused, now and at that date."
)
async def test_a_session_that_was_issued_in_the_future_is_refused_and_never_becomes_valid(
    machine: Machine, api: Client, app: App, clock: ManualClock
) -> None:
    user = await make_user(machine.db)
    clock.advance(YEAR_MS)
    session = await log_in(machine.db, user)
    clock.advance(-YEAR_MS)

    at_once = await api.get("/v1/me", token=session)
    await machine.started()
    clock.advance(YEAR_MS)
    later = await api.get("/v1/me", token=session)

    assert (at_once.status, later.status) == (401, 401)


async def test_a_token_that_was_made_by_a_clock_ahead_expires_after_its_days(
    machine: Machine, api: Client, app: App, clock: ManualClock
) -> None:
    user = await make_user(machine.db)
    org = await make_org(machine.db, user)
    clock.advance(YEAR_MS)
    token = await make_token(machine.db, user, org.id, expires_in_days=7)
    clock.advance(-YEAR_MS)

    with structlog.testing.capture_logs() as logged:
        await machine.started()
    clock.advance(7 * DAY_MS - 1)
    before = await api.get("/v1/me", token=token)
    clock.advance(1)
    after = await api.get("/v1/me", token=token)

    assert (before.status, after.status) == (200, 401)
    [line] = [each for each in logged if each.get("column") == "expires_at"]
    assert line["before"] > line["after"]
    assert line["row"].startswith("api_token ")


@pytest.mark.settings(snapshots_to_keep=2)
def test_snapshots_that_a_clock_ahead_has_named_do_not_displace_new_ones(
    settings: Settings, sqlite_template: Path, clock: ManualClock
) -> None:
    store_path(settings).parent.mkdir(parents=True)
    shutil.copyfile(sqlite_template, store_path(settings))
    ahead = [snapshots.make_nightly(settings, clock.now() + YEAR_MS + day * DAY_MS) for day in range(2)]

    made = [snapshots.make_nightly(settings, clock.now() + day * DAY_MS) for day in range(2)]

    assert [path.exists() for path in (*ahead, *made)] == [False, False, True, True]


@pytest.mark.parametrize("rule", future_times.RULES, ids=lambda rule: f"{rule.table.name}.{rule.column}")
async def test_every_rule_corrects_a_time_ahead_and_leaves_a_right_one(
    machine: Machine, clock: ManualClock, rule: future_times.Rule
) -> None:
    wrong = await _row(machine.db, rule, clock.now() + YEAR_MS)
    right = await _row(machine.db, rule, clock.now())

    await machine.started()

    latest = clock.now() + rule.longest_ms + (HOUR_MS if rule.since else 0)
    assert await _time(machine.db, rule, wrong) == latest
    assert await _time(machine.db, rule, right) == latest


_numbers = itertools.count(1)


async def _row(db: Database, rule: future_times.Rule, written_at: int) -> int:
    """Add a row whose times were written at a moment."""
    times = {rule.column: written_at + (HOUR_MS if rule.since else rule.longest_ms)}
    times |= {rule.since: written_at} if rule.since else {}
    return int(await db.write(lambda tx: _add(tx, rule.table, times)["id"]))


def _add(tx: Tx, table: Table, given: dict[str, int]) -> dict[str, Any]:
    """Add a row with whatever its table needs, and the rows that its foreign keys name."""
    values: dict[str, Any] = {}
    for column in table.c:
        if column.name in given:
            values[column.name] = given[column.name]
        elif column.foreign_keys and not column.nullable:
            parent = next(iter(column.foreign_keys)).column
            values[column.name] = _add(tx, parent.table, {})[parent.name]
        elif column.name != "id" and not column.nullable:
            kind, number = column.type.python_type, next(_numbers)
            values[column.name] = number if kind is int else False if kind is bool else f"x{number}"
    add = Query(insert(table).returning(table.c.id), scalar, sets=tuple(values))
    return {**values, "id": tx.one(add, **values)}


async def _time(db: Database, rule: future_times.Rule, row_id: int) -> int:
    query = Query(select(rule.table.c[rule.column]).where(rule.table.c.id == arg("id")), scalar)
    return int(await db.read(lambda tx: tx.one(query, id=row_id)))
