"""The states of an event that somebody else's platform sent us."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class WebhookStatus(StrEnum):
    RECEIVED = "received"  # recorded, its job waits
    HANDLED = "handled"  # took effect
    IGNORED = "ignored"  # about nobody we know, or of a kind that nobody listens for
    FAILED = "failed"  # its job raised; nothing of it took effect


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
