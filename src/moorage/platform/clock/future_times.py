"""Correct stored times that lie in the future because a clock was ahead.

Without a correction such a time has its effect only when the clock reaches it: a token for a day is valid for a year, a
name stays reserved, a replica drains for months. The scheduler corrects the times of ticks and jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from sqlalchemy import ColumnElement, Table, delete, select, update

from moorage.accounts.identity.organizations.freed_names import RESERVATION_MS, freed_name
from moorage.accounts.identity.tables import api_token, invitation, login_session
from moorage.core.artifacts.tables import artifact
from moorage.core.db.query import Command, Query, arg
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.http.idempotency.tables import idempotency_key
from moorage.core.jobs.corrections import Correction
from moorage.core.kit.clock import SKEW_MS
from moorage.core.kit.records import dataclass
from moorage.products.apps.service import DRAIN_MS
from moorage.products.apps.tables import replica
from moorage.products.databases.tables import backup, database
from moorage.products.domains.service import CHECK_EVERY_MS
from moorage.products.domains.tables import custom_domain
from moorage.products.monitors.tables import certificate_notice
from moorage.products.projects.tables import project_name
from moorage.products.schedules.tables import schedule_run

BATCH = 500
_WHY = "a clock is wrong for every organization"


@dataclass(frozen=True)
class Rule:
    """A column of times and the farthest possible future of its values.

    With `since`, the time is relative to that column: if `since` is in the future, both move back by the same span.
    Otherwise the time is set to the latest possible value.
    """

    table: Table
    column: str
    longest_ms: int = 0
    since: str | None = None

    @property
    def _tested(self) -> ColumnElement[int]:
        return self.table.c[self.since or self.column]

    @cached_property
    def find(self) -> Query[tuple[int, int, int]]:
        c = self.table.c
        is_ahead = (self._tested > arg("latest")) & c[self.column].is_not(None)
        rows = select(c.id, c[self.column], self._tested).where(is_ahead).order_by(c.id).limit(arg("most"))
        return Query(rows, lambda *row: (row[0], row[1], row[2]))

    @cached_property
    def set(self) -> Command:
        values = {self.column: arg("new")} | ({self.since: arg("now")} if self.since else {})
        row = (self.table.c.id == arg("id")) & (self._tested == arg("seen"))
        return Command(update(self.table).where(row).values(values))


RULES = (
    Rule(api_token, "expires_at", since="created_at"),
    Rule(api_token, "last_used_at"),
    Rule(invitation, "expires_at", since="created_at"),
    Rule(idempotency_key, "expires_at", since="created_at"),
    Rule(freed_name, "until", RESERVATION_MS),
    Rule(project_name, "until"),
    Rule(custom_domain, "next_check_at", CHECK_EVERY_MS),
    Rule(custom_domain, "certificate_at"),
    Rule(replica, "drain_until", DRAIN_MS),
    Rule(replica, "updated_at"),
    Rule(schedule_run, "due_at"),
    Rule(schedule_run, "started_at"),
    Rule(backup, "expires_at", since="completed_at"),
    Rule(database, "verified_at"),
    Rule(database, "deleted_at"),
    Rule(artifact, "unreferenced_since"),
    Rule(certificate_notice, "created_at"),
)
_s = login_session.c
_ISSUED_AHEAD: Query[tuple[int, int, int]] = Query(
    select(_s.id, _s.user_id, _s.expires_at).where(_s.created_at > arg("latest")), lambda *row: (row[0], row[1], row[2])
)
_END_SESSION = Command(delete(login_session).where(_s.id == arg("id")))


@across_organizations(_WHY)
def find_wrong(tx: Tx) -> list[Rule]:
    """Return the rules that some row violates; reads only, so writers may continue."""
    return [rule for rule in RULES if tx.all(rule.find, latest=tx.now + rule.longest_ms + SKEW_MS, most=1)]


@across_organizations(_WHY)
def correct(tx: Tx, rule: Rule) -> list[Correction]:
    """Correct a batch of rows of a rule; repeat until the result is empty."""
    return list(_correct(tx, rule))


@across_organizations(_WHY)
def _correct(tx: Tx, rule: Rule) -> Iterator[Correction]:
    for row_id, before, tested in tx.all(rule.find, latest=tx.now + rule.longest_ms + SKEW_MS, most=BATCH):
        after = before - (tested - tx.now) if rule.since else tx.now + rule.longest_ms
        tx.run(rule.set, id=row_id, seen=tested, new=after, now=tx.now)
        yield Correction(f"{rule.table.name} {row_id}", rule.column, before, after)


@across_organizations(_WHY)
def end_sessions(tx: Tx) -> list[Correction]:
    """End sessions issued in the future: their tokens would become valid at that time."""
    ended = []
    for row_id, user_id, expires_at in tx.all(_ISSUED_AHEAD, latest=tx.now + SKEW_MS):
        tx.run(_END_SESSION, id=row_id)
        ended.append(Correction(f"session {row_id} of user {user_id}, ended", "expires_at", expires_at, tx.now))
    return ended
