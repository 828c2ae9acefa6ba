"""Routes of alerts and their incidents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.core.http.waiting import Progress
from moorage.products.monitors import service
from moorage.products.monitors.alerts import messages
from moorage.products.monitors.alerts import service as alerts
from moorage.products.monitors.alerts.schemas import (
    AlertDeleted,
    AlertDelivery,
    AlertOut,
    AlertTest,
    CreateAlertInput,
    IncidentOut,
    UpdateAlertInput,
)
from moorage.products.monitors.schemas import HeartbeatQuery
from moorage.products.monitors.states import NoticeStatus


def make_router() -> Router:
    router = Router("Monitors")
    _add_of_monitor(router)
    _add_of_alert(router)
    return router


def _follow_notices(tx: Tx, caller: Caller, answer: AlertTest, path: Mapping[str, Any]) -> Progress:
    """Follow test notices until each was delivered or refused once."""
    latest = alerts.show(tx, caller.org_id, alerts.get(tx, caller.org_id, path["alert_id"])).deliveries
    tests = [AlertDelivery.of(each) for each in latest if each.kind == messages.TEST]
    is_tried = all(each.attempts > 0 or each.status != NoticeStatus.PENDING for each in tests)
    return Progress(AlertTest(tests) if tests else answer, is_tried)


def _add_of_monitor(router: Router) -> None:
    @router.get("/monitors/{monitor_id}/alerts")
    def list_alerts(tx: Tx, caller: Caller, monitor_id: int) -> list[AlertOut]:
        """List the alerts of a monitor, oldest first.

        `deliveries` has the last notice of each channel with its status. `disabled` has the reason why a channel is not
        used any more.
        """
        monitor = service.get(tx, caller.org_id, monitor_id)
        return [AlertOut.of(details) for details in alerts.show_all(tx, caller.org_id, monitor)]

    @router.post("/monitors/{monitor_id}/alerts", min_role=Role.MEMBER)
    def create_alert(tx: Tx, caller: Caller, monitor_id: int, body: CreateAlertInput) -> AlertOut:
        """Create an alert that triggers when a condition holds for `duration` minutes.

        A notice is sent when it triggers and when it resolves. Two good checks in a row resolve it. An alert that
        triggers and resolves repeatedly sends one notice as flapping, and the next one after it was steady.
        """
        alert = alerts.create(tx, caller.org_id, caller.as_actor, monitor_id, body.new(), body.addresses())
        return AlertOut.of(alerts.show(tx, caller.org_id, alert))

    @router.get("/monitors/{monitor_id}/incidents")
    def list_incidents(tx: Tx, caller: Caller, monitor_id: int, query: HeartbeatQuery) -> list[IncidentOut]:
        """List the incidents of a monitor, newest first."""
        monitor = service.get(tx, caller.org_id, monitor_id)
        return [IncidentOut.of(each) for each in alerts.incidents_of(tx, caller.org_id, monitor, query.limit)]


def _add_of_alert(router: Router) -> None:
    @router.patch("/alerts/{alert_id}", min_role=Role.MEMBER)
    def update_alert(tx: Tx, caller: Caller, alert_id: int, body: UpdateAlertInput) -> AlertOut:
        """Change, acknowledge, enable or disable an alert.

        A new condition counts from now. A channel that is not used any more is tried again after it is switched on or
        gets an address.
        """
        alert = alerts.update(tx, caller.org_id, caller.as_actor, alert_id, body.changes(), body.addresses())
        return AlertOut.of(alerts.show(tx, caller.org_id, alert))

    @router.delete("/alerts/{alert_id}", min_role=Role.MEMBER)
    def delete_alert(tx: Tx, caller: Caller, alert_id: int) -> AlertDeleted:
        """Delete an alert with its incidents. Pending notices are not sent."""
        alerts.delete(tx, caller.org_id, caller.as_actor, alert_id)
        return AlertDeleted(True)

    @router.post("/alerts/{alert_id}/test", min_role=Role.MEMBER, follow=_follow_notices)
    def try_alert(tx: Tx, caller: Caller, alert_id: int) -> AlertTest:
        """Send a test notice to every enabled channel; the list of alerts has the result."""
        sent = alerts.send_test(tx, caller.org_id, caller.as_actor, alert_id)
        return AlertTest([AlertDelivery.of(each) for each in sent])
