"""Alerts of monitors: made, changed, acknowledged, tried out, deleted; and their incidents."""

from __future__ import annotations

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.products.monitors import service
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


def make_router() -> Router:
    router = Router("Monitors")
    _add_of_monitor(router)
    _add_of_alert(router)
    return router


def _add_of_monitor(router: Router) -> None:
    @router.get("/monitors/{monitor_id}/alerts")
    def list_alerts(tx: Tx, caller: Caller, monitor_id: int) -> list[AlertOut]:
        """List the alerts of a monitor, oldest first.

        `deliveries` has the last thing that was told over each channel, and whether it arrived. `disabled` says why
        nothing is sent over a channel any more.
        """
        found = service.get(tx, caller.org_id, monitor_id)
        return [AlertOut.of(shown) for shown in alerts.show_all(tx, caller.org_id, found)]

    @router.post("/monitors/{monitor_id}/alerts", floor=Role.MEMBER)
    def create_alert(tx: Tx, caller: Caller, monitor_id: int, body: CreateAlertInput) -> AlertOut:
        """Be told once something holds for `duration` minutes, and again once it does no longer.

        Two good checks in a row end it. An alert that starts and ends again and again is told once as flapping, until
        it is steady.
        """
        made = alerts.create(tx, caller.org_id, caller.as_actor, monitor_id, body.new(), body.addresses())
        return AlertOut.of(alerts.show(tx, caller.org_id, made))

    @router.get("/monitors/{monitor_id}/incidents")
    def list_incidents(tx: Tx, caller: Caller, monitor_id: int, query: HeartbeatQuery) -> list[IncidentOut]:
        """List when alerts of a monitor were triggered, by what, and until when; newest first."""
        found = service.get(tx, caller.org_id, monitor_id)
        return [IncidentOut.of(each) for each in alerts.incidents_of(tx, caller.org_id, found, query.limit)]


def _add_of_alert(router: Router) -> None:
    @router.patch("/alerts/{alert_id}", floor=Role.MEMBER)
    def update_alert(tx: Tx, caller: Caller, alert_id: int, body: UpdateAlertInput) -> AlertOut:
        """Change, acknowledge or switch an alert.

        Another condition counts from now. A channel that was given up is tried again once it is switched on or gets
        another address.
        """
        changed = alerts.update(tx, caller.org_id, caller.as_actor, alert_id, body.changes(), body.addresses())
        return AlertOut.of(alerts.show(tx, caller.org_id, changed))

    @router.delete("/alerts/{alert_id}", floor=Role.MEMBER)
    def delete_alert(tx: Tx, caller: Caller, alert_id: int) -> AlertDeleted:
        """Delete an alert with its incidents. What is yet to be told about it is told no longer."""
        alerts.delete(tx, caller.org_id, caller.as_actor, alert_id)
        return AlertDeleted(True)

    @router.post("/alerts/{alert_id}/test", floor=Role.MEMBER)
    def try_alert(tx: Tx, caller: Caller, alert_id: int) -> AlertTest:
        """Send a test notice over every channel that is on. The list of alerts says whether it arrived."""
        sent = alerts.send_test(tx, caller.org_id, caller.as_actor, alert_id)
        return AlertTest([AlertDelivery.of(each) for each in sent])
