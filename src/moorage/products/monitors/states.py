"""The states of a monitor, of an alert, and of what is to be told about one."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class MonitorStatus(StrEnum):
    RUNNING = "running"  # is checked at every interval
    PAUSE = "pause"  # is not checked, and no time counts


class BeatStatus(StrEnum):
    """What one check found. It never changes, so it has no machine."""

    UP = "UP"  # the target answered as it should
    DOWN = "DOWN"  # it did not, at any try
    PAUSE = "PAUSE"  # stands for the time from here on in which nothing was checked


class AlertStatus(StrEnum):
    ACTIVE = "active"  # is watched; its condition does not hold, or not for long enough yet
    TRIGGERED = "triggered"  # its condition has held for as long as it says
    INACTIVE = "inactive"  # is not watched: the monitor is paused or the alert is switched off


class NoticeStatus(StrEnum):
    PENDING = "pending"  # is on its way, or waits for another try
    DELIVERED = "delivered"  # the receiver took it
    FAILED = "failed"  # was given up; `lastError` says why


M, A, N = MonitorStatus, AlertStatus, NoticeStatus
MONITOR = Machine("monitor", {M.RUNNING: {M.PAUSE}, M.PAUSE: {M.RUNNING}})
ALERT = Machine(
    "alert",
    {A.ACTIVE: {A.TRIGGERED, A.INACTIVE}, A.TRIGGERED: {A.ACTIVE, A.INACTIVE}, A.INACTIVE: {A.ACTIVE}},
)
NOTICE = Machine("alert_notice", {N.PENDING: {N.DELIVERED, N.FAILED}, N.DELIVERED: set(), N.FAILED: set()})
