"""Handles webhook events exactly once, in the transaction that ends the job."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.accounts.webhooks import stripe, tables
from moorage.accounts.webhooks.service import GithubEvents, HandleWebhookEvent
from moorage.accounts.webhooks.states import WEBHOOK_EVENT, WebhookStatus
from moorage.accounts.webhooks.tables import Provider, StoredEvent
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.worker.run import Handlers, Run


def register(handlers: Handlers, github: GithubEvents | None = None) -> GithubEvents:
    """Register the job of an event. Return the registry for listeners of products."""
    events = GithubEvents() if github is None else github

    async def run(run: Run, job: HandleWebhookEvent) -> None:
        event = await run.read(partial(_find, job=job))
        if event is None:
            return
        # In a thread and before the transaction: a payload of megabytes would block all other writes meanwhile.
        payload = await asyncio.to_thread(json.loads, event.payload)
        await run.write(partial(handle, job=job, github=events, payload=payload))

    handlers.add(HandleWebhookEvent, run, on_failure=give_up)
    handlers.listen(OrganizationDeleted, delete_holdings)
    return events


@across_organizations("the content of the event determines the organization")
def handle(tx: Tx, job: HandleWebhookEvent, github: GithubEvents, payload: dict[str, Any]) -> None:
    """Apply an event with its parsed payload. Safe to repeat."""
    event = _find(tx, job)
    if event is None:
        return
    is_stripe = event.provider == Provider.STRIPE
    took_effect = stripe.apply(tx, event, payload) if is_stripe else github.dispatch(tx, event, payload)
    to = WebhookStatus.HANDLED if took_effect else WebhookStatus.IGNORED
    move(tx, WEBHOOK_EVENT, event, to=to, handled_at=tx.now)


@across_organizations("the job names the event")
def give_up(tx: Tx, job: HandleWebhookEvent) -> None:
    event = _find(tx, job)
    if event is not None:
        move(tx, WEBHOOK_EVENT, event, to=WebhookStatus.FAILED, handled_at=tx.now)


@across_organizations("the job names the event")
def _find(tx: Tx, job: HandleWebhookEvent) -> StoredEvent | None:
    """Return the event of a job; None if it was handled."""
    event = tx.find(tables.FIND, id=job.event_id)
    return event if event is not None and event.status == WebhookStatus.RECEIVED else None


@across_organizations("the event names the organization")
def delete_holdings(tx: Tx, event: OrganizationDeleted) -> None:
    tx.run(tables.DELETE_HOLDINGS_OF, org_id=event.org_id)
