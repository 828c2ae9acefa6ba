"""Monitors: made, changed, paused, resumed, deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import func, select

from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import Standing
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor, Target
from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, scalar
from moorage.core.db.tx import Tx, move
from moorage.core.kit.masking import MASK
from moorage.core.vault import service as vault
from moorage.errors import NotFound, bad_field
from moorage.products.monitors import redaction, tables
from moorage.products.monitors.alerts import incidents
from moorage.products.monitors.probing import codes
from moorage.products.monitors.states import MONITOR, BeatStatus, MonitorStatus
from moorage.products.monitors.tables import BODY, HEADERS, Heartbeat, Monitor, State, heartbeat, monitor, state
from moorage.products.projects import service as projects

PAUSED = "paused"  # what the heartbeat says that stands for the time in which nothing is checked
Headers = Sequence[tuple[str, str]]

_m, _h, _s = monitor.c, heartbeat.c, state.c
_same = heartbeat.alias()
_newest = select(func.max(_same.c.slot)).where(_same.c.monitor_id == _m.id).correlate(monitor).scalar_subquery()
LAST_BEATS = Query(
    select(*columns(heartbeat)).where((_m.org_id == arg("org_id")) & (_h.monitor_id == _m.id) & (_h.slot == _newest)),
    Heartbeat,
)
ADD_BEAT: Query[int] = Query(insert_or_ignore(heartbeat), scalar, sets=tables.sets_of(heartbeat))
# What was read of the former address says nothing about the new one.
FORGET_CERTIFICATE = Command(
    state.update()
    .where((_s.org_id == arg("org_id")) & (_s.monitor_id == arg("id")))
    .values(ssl_subject=None, ssl_issuer=None, ssl_valid_to=None, ssl_fingerprint=None)
)


@dataclass(frozen=True, slots=True)
class NewMonitor:
    """A monitor as it is asked for."""

    name: str
    url: str
    project_id: int | None = None
    interval_s: int = 60
    timeout_ms: int = 10_000
    retries: int = 1
    http_method: str = "GET"
    status_codes: str = json.dumps(codes.DEFAULT)
    keyword: str | None = None
    expire_cert_notify: bool = False
    ignore_tls_error: bool = False
    is_public: bool = False


def find(tx: Tx, org_id: int, monitor_id: int) -> Monitor | None:
    return tx.find(tables.FIND, org_id=org_id, id=monitor_id)


def get(tx: Tx, org_id: int, monitor_id: int) -> Monitor:
    return _there(find(tx, org_id, monitor_id))


def lock(tx: Tx, org_id: int, monitor_id: int) -> Monitor:
    """Return a monitor for who is about to change it. No check of it is written down meanwhile."""
    return _there(tx.find(tables.LOCK, org_id=org_id, id=monitor_id))


def all_of(tx: Tx, org_id: int) -> list[Monitor]:
    """Return all monitors of an organization, newest first."""
    return tx.all(tables.ALL_OF, org_id=org_id)


def count(tx: Tx, org_id: int) -> int:
    found: int = tx.one(tables.COUNT, org_id=org_id)
    return found


def state_of(tx: Tx, org_id: int, found: Monitor) -> State:
    """Return what the checks of a monitor left; raises NotFound where it has just been deleted."""
    state_now = tx.find(tables.FIND_STATE, org_id=org_id, id=found.id)
    if state_now is None:
        raise _no_monitor()
    return state_now


def heartbeats(tx: Tx, org_id: int, found: Monitor, most: int) -> list[Heartbeat]:
    """Return what the latest checks found, newest first."""
    return tx.all(tables.HEARTBEATS, org_id=org_id, id=found.id, most=most)


def last_beats(tx: Tx, org_id: int) -> dict[int, Heartbeat]:
    """Return the newest heartbeat of each monitor that has one, by the monitor's id."""
    return {beat.monitor_id: beat for beat in tx.all(LAST_BEATS, org_id=org_id)}


def headers_of(tx: Tx, org_id: int, found: Monitor) -> list[tuple[str, str]]:
    """Return the headers that each check sends."""
    stored = vault.find(tx, org_id, found.resource, HEADERS) if found.has_headers else None
    return [(name, value) for name, value in json.loads(stored)] if stored is not None else []


def body_of(tx: Tx, org_id: int, found: Monitor) -> str | None:
    """Return what each check sends as its body."""
    return vault.find(tx, org_id, found.resource, BODY) if found.has_body else None


def target_of(found: Monitor) -> Target:
    return Target("monitor", found.name)


# Changing them.


def create(
    tx: Tx,
    org_id: int,
    actor: Actor,
    standing: Standing,
    new: NewMonitor,
    *,
    headers: Headers = (),
    body: str | None = None,
) -> Monitor:
    """Make a monitor. Its first check is due at once."""
    plans.check_room(tx, org_id, standing, "monitors")
    if new.project_id is not None:
        projects.get_by_id(tx, org_id, new.project_id)
    check_keyword(new.http_method, new.keyword, "keyword")
    monitor_id = tx.one(
        tables.ADD,
        **{each.name: getattr(new, each.name) for each in fields(new)},
        org_id=org_id,
        status=MonitorStatus.RUNNING,
        has_headers=False,
        has_body=False,
        from_at=tx.now,
        revision=1,
        prober=None,
        created_at=tx.now,
        updated_at=tx.now,
    )
    tx.run(tables.ADD_STATE, org_id=org_id, monitor_id=monitor_id, missed=0)
    made = get(tx, org_id, monitor_id)
    _set_hidden(tx, org_id, made, {"headers": headers, "body": body})
    audit.record(tx, org_id, actor, "monitor.created", target_of(made))
    return get(tx, org_id, monitor_id)


def update(
    tx: Tx, org_id: int, actor: Actor, monitor_id: int, changes: Mapping[str, Any], hidden: Mapping[str, Any]
) -> Monitor:
    """Change a monitor: `changes` by column, `hidden` may have new `headers` and a new `body`."""
    before = lock(tx, org_id, monitor_id)
    changes, hidden = _restore(tx, org_id, before, changes, hidden)
    merged = {"http_method": before.http_method, "keyword": before.keyword, **changes}
    check_keyword(merged["http_method"], merged["keyword"], "keyword" if "keyword" in changes else "httpMethod")
    changed = {column: value for column, value in changes.items() if getattr(before, column) != value}
    for column, value in changed.items():
        tx.run(tables.SET[column], org_id=org_id, id=before.id, new=value, now=tx.now)
    if "url" in changed:
        tx.run(FORGET_CERTIFICATE, org_id=org_id, id=before.id)
    _set_hidden(tx, org_id, before, hidden)
    tx.run(tables.TOUCH, org_id=org_id, id=before.id, now=tx.now)
    after = get(tx, org_id, before.id)
    audit.record(tx, org_id, actor, "monitor.updated", target_of(after), changed=sorted({*changed, *hidden}))
    return after


def _restore(
    tx: Tx, org_id: int, monitor: Monitor, changes: Mapping[str, Any], hidden: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Replace the masks of redacted values in an update by what is stored."""
    restored = dict(hidden)
    # The stored values are decrypted only for a mask: a new value must be able to replace a damaged ciphertext.
    if any(value == MASK for _, value in restored.get("headers", ())):
        restored["headers"] = redaction.restore_headers(restored["headers"], headers_of(tx, org_id, monitor))
    if restored.get("body") == MASK and monitor.has_body:
        restored["body"] = body_of(tx, org_id, monitor)
    return redaction.restore_changes(changes, monitor.url), restored


def check_keyword(method: str, keyword: str | None, field: str) -> None:
    """Raise BadRequest on the field where a keyword is looked for in an answer that has no body."""
    if method == "HEAD" and keyword is not None:
        raise bad_field(field, "an answer to HEAD has no body in which a keyword could be found")


def _set_hidden(tx: Tx, org_id: int, found: Monitor, hidden: Mapping[str, Any]) -> None:
    """Put what is given into the vault; what is empty is removed from it."""
    if "headers" in hidden:
        text = json.dumps([list(pair) for pair in hidden["headers"]]) if hidden["headers"] else None
        _put(tx, org_id, found, "has_headers", HEADERS, text)
    if "body" in hidden:
        _put(tx, org_id, found, "has_body", BODY, hidden["body"] or None)


def _put(tx: Tx, org_id: int, found: Monitor, column: str, name: str, value: str | None) -> None:
    if value is not None:
        vault.put(tx, org_id, found.resource, name, value)
    elif getattr(found, column):
        vault.remove(tx, org_id, found.resource, name)
    tx.run(tables.SET[column], org_id=org_id, id=found.id, new=value is not None, now=tx.now)


def pause(tx: Tx, org_id: int, actor: Actor, monitor_id: int) -> Monitor:
    """Check a monitor no longer; the time until it is resumed counts neither as up nor as down. Safe to repeat."""
    found = lock(tx, org_id, monitor_id)
    if found.is_running:
        move(tx, MONITOR, found, to=MonitorStatus.PAUSE)
        _add_pause_beat(tx, org_id, found)
        tx.one(tables.ADD_PAUSE, org_id=org_id, monitor_id=found.id, began_at=tx.now)
        incidents.on_pause(tx, org_id, get(tx, org_id, found.id))
        audit.record(tx, org_id, actor, "monitor.paused", target_of(found))
    return get(tx, org_id, found.id)


def _add_pause_beat(tx: Tx, org_id: int, found: Monitor) -> None:
    """Write the heartbeat that stands for the pause, right after a check that was due in the same millisecond."""
    values = {"org_id": org_id, "monitor_id": found.id, "at": tx.now, "status": BeatStatus.PAUSE}
    tx.one(ADD_BEAT, **values, slot=_free_slot(tx, org_id, found), response_ms=None, code=None, message=PAUSED)


def _free_slot(tx: Tx, org_id: int, found: Monitor) -> int:
    newest = heartbeats(tx, org_id, found, 1)
    return max(tx.now, newest[0].slot + 1) if newest else tx.now


def resume(tx: Tx, org_id: int, actor: Actor, monitor_id: int) -> Monitor:
    """Check a monitor again, the first time at once. Safe to repeat."""
    found = lock(tx, org_id, monitor_id)
    if not found.is_running:
        move(tx, MONITOR, found, to=MonitorStatus.RUNNING)
        tx.run(tables.END_PAUSE, org_id=org_id, id=found.id, now=tx.now)
        tx.run(tables.START_ANEW, org_id=org_id, id=found.id, now=_free_slot(tx, org_id, found))
        incidents.on_resume(tx, org_id, get(tx, org_id, found.id))
        audit.record(tx, org_id, actor, "monitor.resumed", target_of(found))
    return get(tx, org_id, found.id)


def delete(tx: Tx, org_id: int, actor: Actor, monitor_id: int) -> None:
    """Delete a monitor and its alerts. What its checks found is cleared up later."""
    found = lock(tx, org_id, monitor_id)
    audit.record(tx, org_id, actor, "monitor.deleted", target_of(found))
    _remove(tx, org_id, found)


def delete_all(tx: Tx, org_id: int) -> None:
    """Delete every monitor of an organization that is gone itself."""
    # Whoever writes checks down locks monitors by their ids, and alerts after them; any other order might wait forever.
    for found in reversed(all_of(tx, org_id)):
        if tx.find(tables.LOCK, org_id=org_id, id=found.id) is not None:
            _remove(tx, org_id, found)


def _remove(tx: Tx, org_id: int, found: Monitor) -> None:
    incidents.remove_of_monitor(tx, org_id, found.id)
    vault.remove_all(tx, org_id, found.resource)
    tx.run(tables.DELETE_STATE, org_id=org_id, id=found.id)
    tx.run(tables.DELETE, org_id=org_id, id=found.id)


def forget_project(tx: Tx, org_id: int, project_id: int) -> None:
    """Let the monitors of a project go on by themselves, for whoever deletes it in the same unit."""
    tx.run(tables.FORGET_PROJECT, org_id=org_id, project_id=project_id, now=tx.now)


def _there(found: Monitor | None) -> Monitor:
    if found is None:
        raise _no_monitor()
    return found


def _no_monitor() -> NotFound:
    return NotFound("There is no such monitor")
