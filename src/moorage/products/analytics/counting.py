"""Adds a batch of requests to the figures of projects.

The same transaction stores the read position in the log. A visitor counts once per project, hour and day, and is
identified by a keyed hash of IP address and user agent. The key changes every day (UTC) and is deleted after the day,
so visitors cannot be recognized on another day or in another project.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from operator import itemgetter
from typing import Any

from moorage.core.db.scope import PLATFORM_ORG_ID, across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, HOUR_MS
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.products.analytics import tables
from moorage.products.analytics.lines import Hit
from moorage.products.analytics.tables import OTHER, PATH, REFERRER, STATUSES, LogPosition

SALTS = "analytics"  # vault scope of the daily salts
KEPT_MS = 90 * DAY_MS
MAX_NAMES = 500  # rows per list, project and day; further names are counted in one row
MAX_VISITORS = 100_000  # per project and day: forged visitors must not fill the database

# Organization id and project id.
Owner = tuple[int, int]
# Returns the project of a host.
FindHost = Callable[[Tx, str], Owner | None]
# Gets the requests of each project in a batch, in the transaction that stores the read position. The transaction may be
# retried, so side effects other than rows belong into `tx.after_commit`.
Consumer = Callable[[Tx, Mapping[Owner, list[Hit]]], None]


class PositionConflict(Exception):
    """Another process counted these lines: the stored read position has changed."""


@dataclass(slots=True)
class ProjectSums:
    """Figures that a batch adds to one project."""

    org_id: int
    project_id: int
    hours: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    names: dict[tuple[str, int], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    visits: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))  # hour bits, by visitor


@across_organizations("one batch has requests for many projects")
def store(
    tx: Tx,
    folder: str,
    old: LogPosition | None,
    new: LogPosition,
    hits: Iterable[Hit],
    find_host: FindHost,
    consumers: Iterable[Consumer],
) -> None:
    """Count a batch and advance the read position; raises PositionConflict."""
    _advance_position(tx, folder, old, new)
    owned = _by_owner(tx, hits, find_host)
    for consumer in consumers:
        consumer(tx, owned)


@across_organizations("one batch has requests for many projects")
def _by_owner(tx: Tx, hits: Iterable[Hit], find_host: FindHost) -> dict[Owner, list[Hit]]:
    """Group requests by project; drops requests to hosts without a project."""
    by_host: dict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        by_host[hit.host].append(hit)
    owned: dict[Owner, list[Hit]] = {}
    for host, host_hits in by_host.items():
        owner = find_host(tx, host)
        if owner is not None:
            owned.setdefault(owner, []).extend(host_hits)
    return owned


@across_organizations("one batch has requests for many projects")
def count_visits(tx: Tx, owned: Mapping[Owner, list[Hit]]) -> None:
    """Consumer that adds requests to the figures of projects with analytics."""
    for sums in _add_up(tx, owned):
        _count_names(tx, sums.org_id, sums)
        _count_visitors(tx, sums.org_id, sums)
        _count_hours(tx, sums.org_id, sums)


@across_organizations("access logs belong to the platform")
def _advance_position(tx: Tx, folder: str, old: LogPosition | None, new: LogPosition) -> None:
    values: dict[str, Any] = {"head_size": new.head_size, "head": new.head, "position": new.position}
    if old is None:
        if tx.find(tables.ADD_POSITION, folder=folder, updated_at=tx.now, **values) is None:
            raise PositionConflict
        return
    expected = {"was_head_size": old.head_size, "was_head": old.head, "was_position": old.position}
    if tx.run(tables.ADVANCE_POSITION, folder=folder, now=tx.now, **expected, **values) == 0:
        raise PositionConflict


@across_organizations("one batch has requests for many projects")
def _add_up(tx: Tx, owned: Mapping[Owner, list[Hit]]) -> list[ProjectSums]:
    """Return the sums of each project with analytics, ordered by project id.

    A host may be logged for other reasons, so the project's current setting decides.
    """
    ids = sorted(project_id for _, project_id in owned)
    counted = set(tx.all(tables.LOCK_PROJECTS, given=tables.as_list(ids))) if ids else set()
    salts: dict[int, bytes] = {}
    sums = []
    for owner in sorted(owned, key=itemgetter(1)):
        hits = [hit for hit in owned[owner] if tx.now - KEPT_MS <= hit.at < tx.now + DAY_MS]
        if owner[1] in counted and hits:
            sums.append(_sum_up(tx, owner[0], owner[1], hits, salts))
    return sums


def _sum_up(tx: Tx, org_id: int, project_id: int, hits: list[Hit], salts: dict[int, bytes]) -> ProjectSums:
    sums = ProjectSums(org_id, project_id)
    for hit in hits:
        _add(sums, hit)
        if hit.visitor is not None:
            day = hit.at // DAY_MS * DAY_MS
            salt = salts.get(day) or salts.setdefault(day, ensure_salt(tx, day))
            visitor = _hash(salt, project_id, hit.visitor)
            sums.visits[day][visitor] = sums.visits[day].get(visitor, 0) | 1 << (hit.at - day) // HOUR_MS
    return sums


def _add(sums: ProjectSums, hit: Hit) -> None:
    hour, day = hit.at // HOUR_MS * HOUR_MS, hit.at // DAY_MS * DAY_MS
    figures = sums.hours[hour]
    figures["requests"] += 1
    figures["bytes"] += hit.bytes
    figures[f"s{hit.status // 100}xx"] += 1
    sums.names[PATH, day][hit.path] += 1
    if hit.referrer is not None:
        sums.names[REFERRER, day][hit.referrer] += 1


def _hash(salt: bytes, project_id: int, visitor: bytes) -> str:
    digest = hmac.digest(salt, b"%d\n%b" % (project_id, visitor), "sha256")
    return base64.b64encode(digest[:16]).decode().rstrip("=")


@across_organizations("the daily salt belongs to the platform")
def ensure_salt(tx: Tx, day: int) -> bytes:
    """Return the salt of a day; the first call creates it."""
    name = str(day // DAY_MS)
    stored = vault.find(tx, PLATFORM_ORG_ID, SALTS, name)
    if stored is None:
        stored = secrets.token_hex(32)
        vault.put(tx, PLATFORM_ORG_ID, SALTS, name, stored)
    return bytes.fromhex(stored)


def _count_names(tx: Tx, org_id: int, sums: ProjectSums) -> None:
    for (kind, day), counts in sums.names.items():
        keys = {"org_id": org_id, "project_id": sums.project_id, "kind": kind, "day": day}
        known = set(tx.all(tables.KNOWN_NAMES, given=tables.as_list(list(counts)), **keys))
        room = MAX_NAMES - tx.one(tables.COUNT_NAMES, **keys) if len(known) < len(counts) else 0
        added: Counter[str] = Counter()
        for name, requests in counts.most_common():
            if name not in known:
                room -= 1
            added[name if name in known or room >= 0 else OTHER] += requests
        rows = [{**keys, "name": name, "requests": requests} for name, requests in added.items()]
        tx.run_many(tables.ADD_TO_TOP, rows)


def _count_visitors(tx: Tx, org_id: int, sums: ProjectSums) -> None:
    """Store the hours of each visitor, and add new visitors to the hourly figures."""
    for day, visits in sums.visits.items():
        keys: dict[str, Any] = {"org_id": org_id, "project_id": sums.project_id}
        known = dict(tx.all(tables.KNOWN_VISITORS, day=day, given=tables.as_list(list(visits)), **keys))
        room = MAX_VISITORS - tx.one(tables.NEWCOMERS, start=day, end=day + DAY_MS, **keys)
        rows = []
        for visitor, hours in visits.items():
            before = known.get(visitor, 0)
            if not before:
                room -= 1
            if hours & ~before == 0 or (not before and room < 0):
                continue
            _add_visitor(sums, day, before, hours)
            rows.append({**keys, "day": day, "visitor": visitor, "hours": hours})
        if rows:
            tx.run_many(tables.ADD_VISITOR, rows)


def _add_visitor(sums: ProjectSums, day: int, before: int, hours: int) -> None:
    new = [hour for hour in range(24) if hours & ~before & 1 << hour]
    for hour in new:
        sums.hours[day + hour * HOUR_MS]["visitors"] += 1
    if not before:
        sums.hours[day + new[0] * HOUR_MS]["newcomers"] += 1


def _count_hours(tx: Tx, org_id: int, sums: ProjectSums) -> None:
    names = ("requests", "visitors", "newcomers", "bytes", *STATUSES)
    rows = [
        {"org_id": org_id, "project_id": sums.project_id, "hour": hour, **{name: figures[name] for name in names}}
        for hour, figures in sums.hours.items()
    ]
    tx.run_many(tables.ADD_TO_HOUR, rows)
