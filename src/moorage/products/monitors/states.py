"""States of monitors, heartbeats, alerts and notices."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class MonitorStatus(StrEnum):
    RUNNING = "running"  # checked at every interval
    PAUSE = "pause"  # not checked; the time counts neither as up nor as down


class BeatStatus(StrEnum):
    """Result of one check. It never changes, so it has no machine."""

    UP = "UP"  # the target gave the expected response
    DOWN = "DOWN"  # all attempts failed
    PAUSE = "PAUSE"  # no check: marks the beginning of a pause


class AlertStatus(StrEnum):
    ACTIVE = "active"  # evaluated; the condition does not hold, or not yet for the required time
    TRIGGERED = "triggered"  # the condition has held for the required time
    INACTIVE = "inactive"  # not evaluated: the monitor is paused or the alert is disabled


class NoticeStatus(StrEnum):
    PENDING = "pending"  # is being sent, or waits for the next attempt
    DELIVERED = "delivered"  # the receiver accepted it
    FAILED = "failed"  # no attempts are left; `lastError` has the reason


M, A, N = MonitorStatus, AlertStatus, NoticeStatus
MONITOR = Machine("monitor", {M.RUNNING: {M.PAUSE}, M.PAUSE: {M.RUNNING}})
ALERT = Machine(
    "alert",
    {A.ACTIVE: {A.TRIGGERED, A.INACTIVE}, A.TRIGGERED: {A.ACTIVE, A.INACTIVE}, A.INACTIVE: {A.ACTIVE}},
)
NOTICE = Machine("alert_notice", {N.PENDING: {N.DELIVERED, N.FAILED}, N.DELIVERED: set(), N.FAILED: set()})
