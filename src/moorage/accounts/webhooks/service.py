"""Records webhook deliveries once, and dispatches GitHub's events to products.

A delivery and its job are added in one transaction, so an acknowledged delivery cannot be lost. The job handles the
event: see `jobs.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import field
from typing import Any

import msgspec

from moorage.accounts.webhooks import tables
from moorage.accounts.webhooks.states import WebhookStatus
from moorage.accounts.webhooks.tables import Provider, StoredEvent
from moorage.core import jobs
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS
from moorage.core.kit.records import dataclass
from moorage.errors import BadRequest

# Detects repeated deliveries for this time; both providers stop repeating after days.
RETENTION_MS = 30 * DAY_MS
_NAME = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event to record."""

    provider: Provider
    event_id: str
    kind: str
    payload: str
    key: str | None  # Jobs with the same key run sequentially, in order of arrival.


class HandleWebhookEvent(msgspec.Struct, frozen=True, tag="webhooks.handle_event"):
    """Handle a recorded event."""

    provider: str
    event_id: int  # of the row


@dataclass(frozen=True, slots=True)
class GithubEvent:
    """Event for listeners. The payload may contain NUL, which databases reject."""

    name: str
    action: str | None
    delivery_id: str
    payload: dict[str, Any]


GithubHandler = Callable[[Tx, GithubEvent], None]


@dataclass
class GithubEvents:
    """Listeners of GitHub's events, which products register at start."""

    listeners: dict[str, list[GithubHandler]] = field(default_factory=dict)

    def listen(self, event: str, handler: GithubHandler) -> None:
        """Register for an event, such as `push`. Its listeners share a transaction."""
        self.listeners.setdefault(event, []).append(handler)

    @across_organizations("listeners find the organization of the repository")
    def dispatch(self, tx: Tx, event: StoredEvent, payload: dict[str, Any]) -> bool:
        """Call the listeners of an event. Return False without listeners."""
        listeners = self.listeners.get(event.kind, [])
        if not listeners:
            return False
        action = payload.get("action")
        github_event = GithubEvent(event.kind, action if isinstance(action, str) else None, event.event_id, payload)
        for listener in listeners:
            listener(tx, github_event)
        return True


def parse(body: bytes) -> tuple[str, dict[str, Any]]:
    """Return a body as text and as a JSON object; raises BadRequest.

    The text is stored unchanged. Every database accepts it: JSON has no raw control characters and UTF-8 no lone
    surrogates, so NUL appears only as an escape.
    """
    try:
        text = body.decode()
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadRequest("the body is not valid JSON") from None
    if not isinstance(value, dict):
        raise BadRequest("the body is not a JSON object")
    return text, value


def stripe_delivery(text: str, payload: dict[str, Any]) -> Delivery:
    """Return the delivery of a Stripe event; raises BadRequest without an id."""
    event_id = usable_name(payload.get("id"))
    if event_id is None:
        raise BadRequest("the event has no usable id")
    # Sequential jobs: the holdings of an organization result from several events.
    return Delivery(Provider.STRIPE, event_id, usable_name(payload.get("type")) or "", text, "webhooks:stripe")


def github_delivery(text: str, payload: dict[str, Any], delivery: str | None, event: str | None) -> Delivery:
    """Return the delivery of a GitHub event; raises BadRequest without an id."""
    event_id = usable_name(delivery)
    if event_id is None:
        raise BadRequest("X-GitHub-Delivery is missing or not usable")
    repository = payload.get("repository")
    repository_id = repository.get("id") if isinstance(repository, dict) else None
    # Keeps the order of pushes to one repository.
    key = f"webhooks:github:{repository_id}" if type(repository_id) is int else None
    return Delivery(Provider.GITHUB, event_id, usable_name(event) or "", text, key)


@across_organizations("the content of the event determines the organization")
def record(tx: Tx, delivery: Delivery) -> bool:
    """Record a delivery and add its job. Return False if it was recorded before."""
    row_id = tx.find(
        tables.ADD_ONCE,
        provider=delivery.provider,
        event_id=delivery.event_id,
        kind=delivery.kind,
        payload=delivery.payload,
        status=WebhookStatus.RECEIVED,
        received_at=tx.now,
    )
    if row_id is None:
        return False
    jobs.add(tx, HandleWebhookEvent(delivery.provider, row_id), key=delivery.key)
    return True


@across_organizations("old events of all organizations")
def sweep(tx: Tx) -> None:
    """Delete old events, and old Stripe holdings that ended or have no organization."""
    tx.run(tables.DELETE_OLD_EVENTS, before=tx.trusted_now - RETENTION_MS)
    tx.run(tables.DELETE_OLD_HOLDINGS, before=tx.trusted_now - RETENTION_MS)


def usable_name(value: Any) -> str | None:
    """Return an identifier if it has 1 to 255 printable ASCII characters, else None."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
