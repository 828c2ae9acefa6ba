"""Recording deliveries once each, and telling features what GitHub said.

A delivery is recorded and its job added in one transaction, so that whoever sent it is told "received" only when it
cannot be lost. What it means is worked out by the job: see `jobs.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moorage.accounts.webhooks import tables
from moorage.accounts.webhooks.states import WebhookStatus
from moorage.accounts.webhooks.tables import Provider, StoredEvent
from moorage.core import jobs
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS
from moorage.errors import BadRequest

# Both providers stop repeating a delivery after days; within this time a repeated one is recognized.
KEPT_MS = 30 * DAY_MS
_NAME = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event as it is about to be recorded."""

    provider: Provider
    event_id: str
    kind: str
    payload: str
    key: str | None  # jobs with the same key run one after the other, in the order of arrival


class HandleWebhookEvent(msgspec.Struct, frozen=True, tag="webhooks.handle_event"):
    """Do what an event asks for."""

    provider: str
    event_id: int  # of the row


@dataclass(frozen=True, slots=True)
class GithubEvent:
    """What a listener sees. The payload is GitHub's: its texts may hold characters that no store takes."""

    name: str
    action: str | None
    delivery_id: str
    payload: dict[str, Any]


GithubHandler = Callable[[Tx, GithubEvent], None]


@dataclass
class GithubEvents:
    """Who wants to hear which of GitHub's events; filled at start by the features."""

    listeners: dict[str, list[GithubHandler]] = field(default_factory=dict)

    def listen(self, event: str, handler: GithubHandler) -> None:
        """Register for an event, such as `push`. Handlers of one delivery share a transaction: all or none."""
        self.listeners.setdefault(event, []).append(handler)

    @across_organizations("a listener finds out whose repository it is")
    def tell(self, tx: Tx, event: StoredEvent) -> bool:
        """Tell everybody who registered. Return False where nobody did."""
        listeners = self.listeners.get(event.kind, [])
        if not listeners:
            return False
        payload = json.loads(event.payload)
        action = payload.get("action")
        told = GithubEvent(event.kind, action if isinstance(action, str) else None, event.event_id, payload)
        for listener in listeners:
            listener(tx, told)
        return True


def parse(body: bytes) -> tuple[str, dict[str, Any]]:
    """Return a body as text and as the object it is; raises BadRequest.

    The text is stored as it came. That is safe everywhere: JSON has no bare control characters and UTF-8 no lone
    surrogates, so NUL and such can only stand in it as escapes.
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
    """Return what to record of one of Stripe's events; raises BadRequest where it has no id."""
    event_id = usable_name(payload.get("id"))
    if event_id is None:
        raise BadRequest("the event has no usable id")
    # One at a time: what an organization holds is added up over several events.
    return Delivery(Provider.STRIPE, event_id, usable_name(payload.get("type")) or "", text, "webhooks:stripe")


def github_delivery(text: str, payload: dict[str, Any], delivery: str | None, event: str | None) -> Delivery:
    """Return what to record of one of GitHub's events; raises BadRequest where it has no id."""
    event_id = usable_name(delivery)
    if event_id is None:
        raise BadRequest("X-GitHub-Delivery is missing or not usable")
    repository = payload.get("repository")
    repository_id = repository.get("id") if isinstance(repository, dict) else None
    # Two pushes to one repository must not overtake each other; those to different ones may.
    key = f"webhooks:github:{repository_id}" if type(repository_id) is int else None
    return Delivery(Provider.GITHUB, event_id, usable_name(event) or "", text, key)


@across_organizations("whose event it is comes out when it is handled")
def record(tx: Tx, delivery: Delivery) -> bool:
    """Record a delivery and ask for its job. Return False, having done nothing, where it was recorded before."""
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


@across_organizations("what is old is old in every organization")
def sweep(tx: Tx) -> None:
    """Forget old events, and what Stripe said of things that ended or that never turned out to be anybody's."""
    tx.run(tables.FORGET_EVENTS, before=tx.trusted_now - KEPT_MS)
    tx.run(tables.FORGET_HOLDINGS, before=tx.trusted_now - KEPT_MS)


def usable_name(value: Any) -> str | None:
    """Return a provider's identifier if it is one: plain printable characters, and not too many."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
