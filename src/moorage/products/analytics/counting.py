"""Adds a batch of requests to the figures of their projects, in the transaction that marks their lines as read.

A visitor counts once per project, hour and day. Who it is, is a keyed hash of address and program: the key is made
anew every day (UTC) and forgotten when the day is over, so nobody is recognized on another day, or in another project.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, HOUR_MS
from moorage.core.vault import service as vault
from moorage.products.analytics import tables
from moorage.products.analytics.lines import Hit
from moorage.products.analytics.tables import OTHER, PATH, REFERRER, STATUSES, Place

PLATFORM = 0
SALTS = "analytics"  # the vault's name for the salts of days
KEPT_MS = 90 * DAY_MS
MOST_NAMES = 500  # rows of one list, project and day; what comes after that is counted together
MOST_VISITORS = 100_000  # of one project and day: whoever makes up visitors must not fill the store

# A project, by its organization's id and its own.
Owner = tuple[int, int]
# Says which project a host belongs to.
FindHost = Callable[[Tx, str], Owner | None]
# Is told of every batch, in the transaction that marks its lines as read: which requests each project had. A unit may
# be run again, so what it does beside writing rows belongs into `tx.after_commit`.
Consumer = Callable[[Tx, Mapping[Owner, list[Hit]]], None]


class MovedOn(Exception):
    """Somebody else counted these lines: the place of the reading is not what it was."""


@dataclass(slots=True)
class Sums:
    """What a batch adds to one project."""

    org_id: int
    project_id: int
    hours: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    names: dict[tuple[str, int], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    visits: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))  # bits of hours, by visitor


@across_organizations("one batch has requests for many projects")
def store(
    tx: Tx,
    folder: str,
    was: Place | None,
    to: Place,
    hits: Iterable[Hit],
    find_host: FindHost,
    consumers: Iterable[Consumer],
) -> None:
    """Let a batch be counted and move the place of the reading, or raise MovedOn and leave nothing behind."""
    _move_on(tx, folder, was, to)
    owned = _by_owner(tx, hits, find_host)
    for consumer in consumers:
        consumer(tx, owned)


@across_organizations("one batch has requests for many projects")
def _by_owner(tx: Tx, hits: Iterable[Hit], find_host: FindHost) -> dict[Owner, list[Hit]]:
    """Return the requests to each project; those to nobody's hosts are left out."""
    by_host: dict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        by_host[hit.host].append(hit)
    owned: dict[Owner, list[Hit]] = {}
    for host, its in by_host.items():
        owner = find_host(tx, host)
        if owner is not None:
            owned.setdefault(owner, []).extend(its)
    return owned


@across_organizations("one batch has requests for many projects")
def count_visits(tx: Tx, owned: Mapping[Owner, list[Hit]]) -> None:
    """Add requests to the figures of those projects that have analytics switched on; a Consumer."""
    for sums in _add_up(tx, owned):
        _count_names(tx, sums.org_id, sums)
        _count_visitors(tx, sums.org_id, sums)
        _count_hours(tx, sums.org_id, sums)


@across_organizations("logs are the platform's")
def _move_on(tx: Tx, folder: str, was: Place | None, to: Place) -> None:
    new: dict[str, Any] = {"head_size": to.head_size, "head": to.head, "position": to.position}
    if was is None:
        if tx.find(tables.ADD_PLACE, folder=folder, updated_at=tx.now, **new) is None:
            raise MovedOn
        return
    old = {"was_head_size": was.head_size, "was_head": was.head, "was_position": was.position}
    if tx.run(tables.MOVE_ON, folder=folder, now=tx.now, **old, **new) == 0:
        raise MovedOn


@across_organizations("one batch has requests for many projects")
def _add_up(tx: Tx, owned: Mapping[Owner, list[Hit]]) -> list[Sums]:
    """Return what each project gets, in the order of their ids; those without analytics are left out.

    A host may be logged for other reasons, so what the project says now decides.
    """
    ids = sorted(project_id for _, project_id in owned)
    counted = set(tx.all(tables.HOLD_PROJECTS, given=tables.as_list(ids))) if ids else set()
    salts: dict[int, bytes] = {}
    sums = []
    for owner in sorted(owned, key=itemgetter(1)):
        hits = [hit for hit in owned[owner] if tx.now - KEPT_MS <= hit.at < tx.now + DAY_MS]
        if owner[1] in counted and hits:
            sums.append(_sum_up(tx, owner[0], owner[1], hits, salts))
    return sums


def _sum_up(tx: Tx, org_id: int, project_id: int, hits: list[Hit], salts: dict[int, bytes]) -> Sums:
    sums = Sums(org_id, project_id)
    for hit in hits:
        _add(sums, hit)
        if hit.visitor is not None:
            day = hit.at // DAY_MS * DAY_MS
            salt = salts.get(day) or salts.setdefault(day, ensure_salt(tx, day))
            visitor = _hash(salt, project_id, hit.visitor)
            sums.visits[day][visitor] = sums.visits[day].get(visitor, 0) | 1 << (hit.at - day) // HOUR_MS
    return sums


def _add(sums: Sums, hit: Hit) -> None:
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


@across_organizations("the salt of a day is the platform's")
def ensure_salt(tx: Tx, day: int) -> bytes:
    """Return the salt of a day, made the first time that it is asked for."""
    name = str(day // DAY_MS)
    stored = vault.find(tx, PLATFORM, SALTS, name)
    if stored is None:
        stored = secrets.token_hex(32)
        vault.put(tx, PLATFORM, SALTS, name, stored)
    return bytes.fromhex(stored)


def _count_names(tx: Tx, org_id: int, sums: Sums) -> None:
    for (kind, day), counts in sums.names.items():
        place = {"org_id": org_id, "project_id": sums.project_id, "kind": kind, "day": day}
        known = set(tx.all(tables.KNOWN_NAMES, given=tables.as_list(list(counts)), **place))
        room = MOST_NAMES - tx.one(tables.COUNT_NAMES, **place) if len(known) < len(counts) else 0
        added: Counter[str] = Counter()
        for name, requests in counts.most_common():
            if name not in known:
                room -= 1
            added[name if name in known or room >= 0 else OTHER] += requests
        rows = [{**place, "name": name, "requests": requests} for name, requests in added.items()]
        tx.run_many(tables.ADD_TO_TOP, rows)


def _count_visitors(tx: Tx, org_id: int, sums: Sums) -> None:
    """Store who was here in which hours, and add those that were not known to the hours' figures."""
    for day, visits in sums.visits.items():
        place: dict[str, Any] = {"org_id": org_id, "project_id": sums.project_id}
        known = dict(tx.all(tables.KNOWN_VISITORS, day=day, given=tables.as_list(list(visits)), **place))
        room = MOST_VISITORS - tx.one(tables.NEWCOMERS, start=day, end=day + DAY_MS, **place)
        rows = []
        for visitor, hours in visits.items():
            before = known.get(visitor, 0)
            if not before:
                room -= 1
            if hours & ~before == 0 or (not before and room < 0):
                continue
            _note(sums, day, before, hours)
            rows.append({**place, "day": day, "visitor": visitor, "hours": hours})
        if rows:
            tx.run_many(tables.ADD_VISITOR, rows)


def _note(sums: Sums, day: int, before: int, hours: int) -> None:
    new = [hour for hour in range(24) if hours & ~before & 1 << hour]
    for hour in new:
        sums.hours[day + hour * HOUR_MS]["visitors"] += 1
    if not before:
        sums.hours[day + new[0] * HOUR_MS]["newcomers"] += 1


def _count_hours(tx: Tx, org_id: int, sums: Sums) -> None:
    names = ("requests", "visitors", "newcomers", "bytes", *STATUSES)
    rows = [
        {"org_id": org_id, "project_id": sums.project_id, "hour": hour, **{name: figures[name] for name in names}}
        for hour, figures in sums.hours.items()
    ]
    tx.run_many(tables.ADD_TO_HOUR, rows)
