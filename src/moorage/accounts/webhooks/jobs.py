"""Handles webhook events exactly once, in the transaction that ends the job."""

from __future__ import annotations

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.accounts.webhooks import stripe, tables
from moorage.accounts.webhooks.service import GithubEvents, HandleWebhookEvent
from moorage.accounts.webhooks.states import WEBHOOK_EVENT, WebhookStatus
from moorage.accounts.webhooks.tables import Provider
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.worker.run import Handlers


def register(handlers: Handlers, github: GithubEvents | None = None) -> GithubEvents:
    """Register the job of an event. Return the registry for listeners of products."""
    events = GithubEvents() if github is None else github

    @across_organizations("the content of the event determines the organization")
    def run(tx: Tx, job: HandleWebhookEvent) -> None:
        handle(tx, job, events)

    handlers.add(HandleWebhookEvent, run, on_failure=give_up)
    handlers.listen(OrganizationDeleted, delete_holdings)
    return events


@across_organizations("the content of the event determines the organization")
def handle(tx: Tx, job: HandleWebhookEvent, github: GithubEvents) -> None:
    event = tx.find(tables.FIND, id=job.event_id)
    if event is None or event.status != WebhookStatus.RECEIVED:
        return
    took_effect = stripe.apply(tx, event) if event.provider == Provider.STRIPE else github.dispatch(tx, event)
    to = WebhookStatus.HANDLED if took_effect else WebhookStatus.IGNORED
    move(tx, WEBHOOK_EVENT, event, to=to, handled_at=tx.now)


@across_organizations("the job names the event")
def give_up(tx: Tx, job: HandleWebhookEvent) -> None:
    event = tx.find(tables.FIND, id=job.event_id)
    if event is not None and event.status == WebhookStatus.RECEIVED:
        move(tx, WEBHOOK_EVENT, event, to=WebhookStatus.FAILED, handled_at=tx.now)


@across_organizations("the event names the organization")
def delete_holdings(tx: Tx, event: OrganizationDeleted) -> None:
    tx.run(tables.DELETE_HOLDINGS_OF, org_id=event.org_id)
