"""Creates, changes, pauses, resumes and deletes monitors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import func, select

from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import Standing
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor, AuditTarget
from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, scalar, sets_of
from moorage.core.db.tx import Tx, move
from moorage.core.kit.masking import MASK
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.errors import NotFound, bad_field
from moorage.products.monitors import redaction, tables
from moorage.products.monitors.alerts import incidents
from moorage.products.monitors.probing import codes
from moorage.products.monitors.states import MONITOR, BeatStatus, MonitorStatus
from moorage.products.monitors.tables import BODY, HEADERS, Heartbeat, Monitor, State, heartbeat, monitor, state
from moorage.products.projects import service as projects

PAUSED = "paused"  # message of the heartbeat that begins a time without checks
Headers = Sequence[tuple[str, str]]

_m, _h, _s = monitor.c, heartbeat.c, state.c
_same = heartbeat.alias()
_newest = select(func.max(_same.c.slot)).where(_same.c.monitor_id == _m.id).correlate(monitor).scalar_subquery()
LAST_BEATS = Query(
    select(*columns(heartbeat)).where((_m.org_id == arg("org_id")) & (_h.monitor_id == _m.id) & (_h.slot == _newest)),
    Heartbeat,
)
ADD_BEAT: Query[int] = Query(insert_or_ignore(heartbeat), scalar, sets=sets_of(heartbeat))
# The stored certificate belongs to the previous URL.
CLEAR_CERTIFICATE = Command(
    state.update()
    .where((_s.org_id == arg("org_id")) & (_s.monitor_id == arg("id")))
    .values(ssl_subject=None, ssl_issuer=None, ssl_valid_to=None, ssl_fingerprint=None)
)


@dataclass(frozen=True, slots=True)
class NewMonitor:
    """Columns of a new monitor that the request sets."""

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
    return _require(find(tx, org_id, monitor_id))


def lock(tx: Tx, org_id: int, monitor_id: int) -> Monitor:
    """Return a monitor with its row locked. No check of it is recorded meanwhile."""
    return _require(tx.find(tables.LOCK, org_id=org_id, id=monitor_id))


def all_of(tx: Tx, org_id: int) -> list[Monitor]:
    """Return all monitors of an organization, newest first."""
    return tx.all(tables.ALL_OF, org_id=org_id)


def count(tx: Tx, org_id: int) -> int:
    total: int = tx.one(tables.COUNT, org_id=org_id)
    return total


def state_of(tx: Tx, org_id: int, monitor: Monitor) -> State:
    """Return the state after the last check; raises NotFound if it was just deleted."""
    state = tx.find(tables.FIND_STATE, org_id=org_id, id=monitor.id)
    if state is None:
        raise _no_monitor()
    return state


def heartbeats(tx: Tx, org_id: int, monitor: Monitor, most: int) -> list[Heartbeat]:
    """Return the latest heartbeats, newest first."""
    return tx.all(tables.HEARTBEATS, org_id=org_id, id=monitor.id, most=most)


def last_beats(tx: Tx, org_id: int) -> dict[int, Heartbeat]:
    """Return the newest heartbeat of each monitor that has one, by the monitor's id."""
    return {beat.monitor_id: beat for beat in tx.all(LAST_BEATS, org_id=org_id)}


def headers_of(tx: Tx, org_id: int, monitor: Monitor) -> list[tuple[str, str]]:
    stored = vault.find(tx, org_id, monitor.resource, HEADERS) if monitor.has_headers else None
    return [(name, value) for name, value in json.loads(stored)] if stored is not None else []


def body_of(tx: Tx, org_id: int, monitor: Monitor) -> str | None:
    return vault.find(tx, org_id, monitor.resource, BODY) if monitor.has_body else None


def target_of(monitor: Monitor) -> AuditTarget:
    return AuditTarget("monitor", monitor.name)


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
    """Create a monitor. Its first check is due immediately."""
    check_keyword(new.http_method, new.keyword, "keyword")
    plans.check_room(tx, org_id, standing, "monitors")
    if new.project_id is not None:
        projects.get_by_id(tx, org_id, new.project_id)
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
    monitor = get(tx, org_id, monitor_id)
    _set_hidden(tx, org_id, monitor, {"headers": headers, "body": body})
    audit.record(tx, org_id, actor, "monitor.created", target_of(monitor))
    return get(tx, org_id, monitor_id)


def update(
    tx: Tx, org_id: int, actor: Actor, monitor_id: int, changes: Mapping[str, Any], hidden: Mapping[str, Any]
) -> Monitor:
    """Change a monitor: `changes` by column; `hidden` may have `headers` and `body`."""
    before = lock(tx, org_id, monitor_id)
    changes, hidden = _restore(tx, org_id, before, changes, hidden)
    merged = {"http_method": before.http_method, "keyword": before.keyword, **changes}
    check_keyword(merged["http_method"], merged["keyword"], "keyword" if "keyword" in changes else "httpMethod")
    changed = {column: value for column, value in changes.items() if getattr(before, column) != value}
    for column, value in changed.items():
        tx.run(tables.SET[column], org_id=org_id, id=before.id, new=value, now=tx.now)
    if "url" in changed:
        tx.run(CLEAR_CERTIFICATE, org_id=org_id, id=before.id)
    _set_hidden(tx, org_id, before, hidden)
    tx.run(tables.TOUCH, org_id=org_id, id=before.id, now=tx.now)
    after = get(tx, org_id, before.id)
    audit.record(tx, org_id, actor, "monitor.updated", target_of(after), changed=sorted({*changed, *hidden}))
    return after


def _restore(
    tx: Tx, org_id: int, monitor: Monitor, changes: Mapping[str, Any], hidden: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Replace the masks of redacted values in an update by the stored values."""
    restored = dict(hidden)
    # The stored values are decrypted only for a mask: a new value must be able to replace a damaged ciphertext.
    if any(value == MASK for _, value in restored.get("headers", ())):
        restored["headers"] = redaction.restore_headers(restored["headers"], headers_of(tx, org_id, monitor))
    if restored.get("body") == MASK and monitor.has_body:
        restored["body"] = body_of(tx, org_id, monitor)
    return redaction.restore_changes(changes, monitor.url), restored


def check_keyword(method: str, keyword: str | None, field: str) -> None:
    """Raise BadRequest for a keyword with HEAD: its response has no body."""
    if method == "HEAD" and keyword is not None:
        raise bad_field(field, "an answer to HEAD has no body in which a keyword could be found")


def _set_hidden(tx: Tx, org_id: int, monitor: Monitor, hidden: Mapping[str, Any]) -> None:
    """Store the given headers and body in the vault; empty ones are removed."""
    if "headers" in hidden:
        text = json.dumps([list(pair) for pair in hidden["headers"]]) if hidden["headers"] else None
        _put(tx, org_id, monitor, "has_headers", HEADERS, text)
    if "body" in hidden:
        _put(tx, org_id, monitor, "has_body", BODY, hidden["body"] or None)


def _put(tx: Tx, org_id: int, monitor: Monitor, column: str, name: str, value: str | None) -> None:
    if value is not None:
        vault.put(tx, org_id, monitor.resource, name, value)
    elif getattr(monitor, column):
        vault.remove(tx, org_id, monitor.resource, name)
    tx.run(tables.SET[column], org_id=org_id, id=monitor.id, new=value is not None, now=tx.now)


def pause(tx: Tx, org_id: int, actor: Actor, monitor_id: int) -> Monitor:
    """Stop the checks of a monitor; paused time counts neither as up nor as down.

    Safe to repeat.
    """
    monitor = lock(tx, org_id, monitor_id)
    if monitor.is_running:
        move(tx, MONITOR, monitor, to=MonitorStatus.PAUSE)
        _add_pause_beat(tx, org_id, monitor)
        tx.one(tables.ADD_PAUSE, org_id=org_id, monitor_id=monitor.id, began_at=tx.now)
        incidents.on_pause(tx, org_id, get(tx, org_id, monitor.id))
        audit.record(tx, org_id, actor, "monitor.paused", target_of(monitor))
    return get(tx, org_id, monitor.id)


def _add_pause_beat(tx: Tx, org_id: int, monitor: Monitor) -> None:
    """Add the heartbeat of a pause, after any check that was due in the same ms."""
    values = {"org_id": org_id, "monitor_id": monitor.id, "at": tx.now, "status": BeatStatus.PAUSE}
    tx.one(ADD_BEAT, **values, slot=_free_slot(tx, org_id, monitor), response_ms=None, code=None, message=PAUSED)


def _free_slot(tx: Tx, org_id: int, monitor: Monitor) -> int:
    newest = heartbeats(tx, org_id, monitor, 1)
    return max(tx.now, newest[0].slot + 1) if newest else tx.now


def resume(tx: Tx, org_id: int, actor: Actor, monitor_id: int) -> Monitor:
    """Start the checks of a monitor again, the first one immediately. Safe to repeat."""
    monitor = lock(tx, org_id, monitor_id)
    if not monitor.is_running:
        move(tx, MONITOR, monitor, to=MonitorStatus.RUNNING)
        tx.run(tables.END_PAUSE, org_id=org_id, id=monitor.id, now=tx.now)
        tx.run(tables.RESTART, org_id=org_id, id=monitor.id, now=_free_slot(tx, org_id, monitor))
        incidents.on_resume(tx, org_id, get(tx, org_id, monitor.id))
        audit.record(tx, org_id, actor, "monitor.resumed", target_of(monitor))
    return get(tx, org_id, monitor.id)


def delete(tx: Tx, org_id: int, actor: Actor, monitor_id: int) -> None:
    """Delete a monitor and its alerts; a maintenance task deletes its heartbeats."""
    monitor = lock(tx, org_id, monitor_id)
    audit.record(tx, org_id, actor, "monitor.deleted", target_of(monitor))
    _remove(tx, org_id, monitor)


def delete_all(tx: Tx, org_id: int) -> None:
    # The prober locks monitors in the order of their ids, then alerts; any other order might deadlock.
    for each in reversed(all_of(tx, org_id)):
        if tx.find(tables.LOCK, org_id=org_id, id=each.id) is not None:
            _remove(tx, org_id, each)


def _remove(tx: Tx, org_id: int, monitor: Monitor) -> None:
    incidents.remove_of_monitor(tx, org_id, monitor.id)
    vault.remove_all(tx, org_id, monitor.resource)
    tx.run(tables.DELETE_STATE, org_id=org_id, id=monitor.id)
    tx.run(tables.DELETE, org_id=org_id, id=monitor.id)


def detach_project(tx: Tx, org_id: int, project_id: int) -> None:
    """Detach the monitors of a project that the same transaction deletes."""
    tx.run(tables.DETACH_PROJECT, org_id=org_id, project_id=project_id, now=tx.now)


def _require(monitor: Monitor | None) -> Monitor:
    if monitor is None:
        raise _no_monitor()
    return monitor


def _no_monitor() -> NotFound:
    return NotFound("There is no such monitor")
