"""Routes of monitors, their heartbeats and their aggregates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.core.http.waiting import Progress
from moorage.core.kit.masking import MASK
from moorage.products.monitors import aggregates, redaction, service, tables
from moorage.products.monitors.schemas import (
    AggregateQuery,
    CreateMonitorInput,
    HeartbeatOut,
    HeartbeatQuery,
    MonitorAggregate,
    MonitorDeleted,
    MonitorOut,
    ShownRequest,
    UpdateMonitorInput,
)
from moorage.products.monitors.states import BeatStatus, MonitorStatus
from moorage.products.monitors.tables import Monitor

_CHANGED_BY = (("status", "POST /v1/monitors/{monitor_id}/pause or POST /v1/monitors/{monitor_id}/resume"),)


def make_router(wake: Callable[[], None]) -> Router:
    """Return the routes; `wake` makes the prober read the monitors again."""
    router = Router("Monitors")
    _add_reads(router)
    _add_writes(router, wake)
    _add_switches(router, wake)
    return router


def _follow_check(tx: Tx, caller: Caller, answer: MonitorOut, path: Mapping[str, Any]) -> Progress:
    """Follow a monitor up to its first check since it was created or resumed."""
    shown = _show(tx, caller, service.get(tx, caller.org_id, answer.id))
    is_checked = shown.last_heartbeat is not None and shown.last_heartbeat.status != BeatStatus.PAUSE
    return Progress(shown, is_checked or shown.status != MonitorStatus.RUNNING)


def _add_reads(router: Router) -> None:
    @router.get("/monitors")
    def list_monitors(tx: Tx, caller: Caller) -> list[MonitorOut]:
        """List the organization's monitors, newest first.

        Viewers get `****` for header values, for `httpBody` and for a password in `url`.
        """
        return _show_all(tx, caller)

    @router.get("/monitors/{monitor_id}")
    def read_monitor(tx: Tx, caller: Caller, monitor_id: int) -> MonitorOut:
        """Return a monitor with its uptime and last heartbeat.

        `uptimePercent` is over the last 24 hours. `missedChecks` counts checks that were due and did not run, and
        `lagMs` is the delay of the last check. Viewers get `****` for header values, for `httpBody` and for a password
        in `url`.
        """
        return _show(tx, caller, service.get(tx, caller.org_id, monitor_id))

    @router.get("/monitors/{monitor_id}/heartbeats")
    def list_heartbeats(tx: Tx, caller: Caller, monitor_id: int, query: HeartbeatQuery) -> list[HeartbeatOut]:
        """List the latest heartbeats of a monitor, newest first.

        `PAUSE` marks the beginning of a time without checks.
        """
        monitor = service.get(tx, caller.org_id, monitor_id)
        return [HeartbeatOut.of(beat) for beat in service.heartbeats(tx, caller.org_id, monitor, query.limit)]

    @router.get("/monitors/{monitor_id}/aggregate")
    def read_aggregate(tx: Tx, caller: Caller, monitor_id: int, query: AggregateQuery) -> MonitorAggregate:
        """Return a monitor's uptime in hourly buckets up to a week, else in daily ones.

        Hours and days are in UTC; the last bucket is incomplete. Buckets without checks are included. Paused time
        counts neither as up nor as down.
        """
        monitor = service.get(tx, caller.org_id, monitor_id)
        buckets = aggregates.buckets(tx, caller.org_id, monitor, query.hours)
        return MonitorAggregate.of(monitor.id, query.hours, buckets)


def _add_writes(router: Router, wake: Callable[[], None]) -> None:
    @router.post("/monitors", min_role=Role.MEMBER, follow=_follow_check)
    def create_monitor(tx: Tx, caller: Caller, body: CreateMonitorInput) -> MonitorOut:
        """Create a monitor that checks a URL at an interval, the first time immediately.

        A check makes up to `1 + retries` attempts and is `DOWN` only if all of them fail. Redirects are followed,
        unless `statusCodes` accept them.
        """
        assert caller.standing is not None
        monitor = service.create(
            tx,
            caller.org_id,
            caller.as_actor,
            caller.standing,
            body.new(),
            headers=body.header_pairs(),
            body=body.http_body,
        )
        tx.after_commit(wake)
        return _show(tx, caller, monitor)

    @router.patch("/monitors/{monitor_id}", min_role=Role.MEMBER, changed_by=_CHANGED_BY)
    def update_monitor(tx: Tx, caller: Caller, monitor_id: int, body: UpdateMonitorInput) -> MonitorOut:
        """Change a monitor.

        `headers` replaces all headers; null removes `keyword` and `httpBody`. A header value or an `httpBody` of `****`
        keeps the stored value, if any.
        """
        monitor = service.update(tx, caller.org_id, caller.as_actor, monitor_id, body.changes(), body.hidden())
        tx.after_commit(wake)
        return _show(tx, caller, monitor)

    @router.delete("/monitors/{monitor_id}", min_role=Role.MEMBER)
    def delete_monitor(tx: Tx, caller: Caller, monitor_id: int) -> MonitorDeleted:
        """Delete a monitor with its alerts and heartbeats."""
        service.delete(tx, caller.org_id, caller.as_actor, monitor_id)
        tx.after_commit(wake)
        return MonitorDeleted(True)


def _add_switches(router: Router, wake: Callable[[], None]) -> None:
    @router.post("/monitors/{monitor_id}/pause", min_role=Role.MEMBER)
    def pause_monitor(tx: Tx, caller: Caller, monitor_id: int) -> MonitorOut:
        """Stop the checks of a monitor and the evaluation of its alerts."""
        paused = service.pause(tx, caller.org_id, caller.as_actor, monitor_id)
        tx.after_commit(wake)
        return _show(tx, caller, paused)

    @router.post("/monitors/{monitor_id}/resume", min_role=Role.MEMBER, follow=_follow_check)
    def resume_monitor(tx: Tx, caller: Caller, monitor_id: int) -> MonitorOut:
        """Start the checks of a monitor again, the first one immediately."""
        resumed = service.resume(tx, caller.org_id, caller.as_actor, monitor_id)
        tx.after_commit(wake)
        return _show(tx, caller, resumed)


def _show(tx: Tx, caller: Caller, monitor: Monitor) -> MonitorOut:
    return MonitorOut.of(
        monitor,
        state=service.state_of(tx, caller.org_id, monitor),
        beat=next(iter(service.heartbeats(tx, caller.org_id, monitor, 1)), None),
        uptime=aggregates.uptime_of(tx, caller.org_id, monitor.id),
        request=_request_of(tx, caller, monitor),
        now=tx.now,
    )


def _show_all(tx: Tx, caller: Caller) -> list[MonitorOut]:
    """Return all monitors except those just deleted, with a fixed number of queries."""
    org_id = caller.org_id
    monitors = service.all_of(tx, org_id)
    states = {state.monitor_id: state for state in tx.all(tables.STATES_OF, org_id=org_id)}
    beats = service.last_beats(tx, org_id)
    uptimes = aggregates.uptimes(tx, org_id)
    return [
        MonitorOut.of(
            monitor,
            state=states[monitor.id],
            beat=beats.get(monitor.id),
            uptime=uptimes.get(monitor.id),
            request=_request_of(tx, caller, monitor),
            now=tx.now,
        )
        for monitor in monitors
        if monitor.id in states
    ]


def _request_of(tx: Tx, caller: Caller, monitor: Monitor) -> ShownRequest:
    """Return the request of a check, redacted for the caller's role."""
    headers = service.headers_of(tx, caller.org_id, monitor)
    if caller.role.reaches(Role.MEMBER):
        return ShownRequest(monitor.url, headers, service.body_of(tx, caller.org_id, monitor))
    body = MASK if monitor.has_body else None
    return ShownRequest(redaction.redact_url(monitor.url), redaction.redact_headers(headers), body)
