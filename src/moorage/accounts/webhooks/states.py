"""States of received webhook events."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class WebhookStatus(StrEnum):
    RECEIVED = "received"  # recorded; the job is pending
    HANDLED = "handled"  # took effect
    IGNORED = "ignored"  # of an unknown organization, or of a kind without a listener
    FAILED = "failed"  # the job raised; the event had no effect


S = WebhookStatus
WEBHOOK_EVENT = Machine(
    "webhook_event",
    {
        S.RECEIVED: {S.HANDLED, S.IGNORED, S.FAILED},
        S.HANDLED: set(),
        S.IGNORED: set(),
        S.FAILED: set(),
    },
)
