"""Signed deliveries as Stripe and GitHub send them."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from sqlalchemy import func, select
from tests.client import Client, Reply

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.organizations.service import Organization
from moorage.accounts.webhooks.service import HandleWebhookEvent
from moorage.accounts.webhooks.tables import StoredEvent, webhook_event
from moorage.core.db.query import Query, scalar
from moorage.core.db.store import Database
from moorage.core.jobs.tables import job
from moorage.core.kit.clock import ManualClock

STRIPE_SECRET = "whsec_harbor_lights"
GITHUB_SECRET = "a secret between the app and us"
SECRETS = {"stripe_webhook_secret": STRIPE_SECRET, "github_webhook_secret": GITHUB_SECRET}
STRIPE_PATH = "/webhook"
GITHUB_PATH = "/api/v1/webhook/github-events"

_e = webhook_event.c
_EVENTS = Query(
    select(_e.id, _e.provider, _e.event_id, _e.kind, _e.payload, _e.status, _e.received_at).order_by(_e.id), StoredEvent
)
_TRACES: Query[str | None] = Query(
    select(job.c.trace_id).where(job.c.kind == HandleWebhookEvent.__struct_config__.tag), scalar
)
_COUNT: Query[int] = Query(select(func.count()).select_from(webhook_event), scalar)


def mac(secret: str, data: bytes) -> str:
    return hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()


def stripe_signature(body: bytes, at_s: int, secret: str = STRIPE_SECRET) -> str:
    return f"t={at_s},v1={mac(secret, f'{at_s}.'.encode() + body)}"


def github_signature(body: bytes, secret: str = GITHUB_SECRET) -> str:
    return f"sha256={mac(secret, body)}"


async def post_stripe(api: Client, body: bytes, signature: str | None, **headers: str) -> Reply:
    given = {"stripe-signature": signature} if signature is not None else {}
    return await api.post(STRIPE_PATH, content=body, headers={**given, **headers})


async def send_stripe(api: Client, clock: ManualClock, event: Any) -> Reply:
    """Deliver an event as Stripe would, signed now."""
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    return await post_stripe(api, body, stripe_signature(body, clock.now() // 1000))


async def send_github(
    api: Client,
    payload: Any,
    *,
    event: str | None = "push",
    delivery: str | None = "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    signature: str | None = None,
    **headers: str,
) -> Reply:
    """Deliver an event as GitHub would."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    given = {
        "x-github-event": event,
        "x-github-delivery": delivery,
        "x-hub-signature-256": github_signature(body) if signature is None else signature,
    }
    sent = {name: value for name, value in given.items() if value is not None}
    return await api.post(GITHUB_PATH, content=body, headers={**sent, **headers})


async def stored_events(db: Database) -> list[StoredEvent]:
    return await db.read(lambda tx: tx.all(_EVENTS))


async def count_events(db: Database) -> int:
    return await db.read(lambda tx: tx.one(_COUNT))


async def job_traces(db: Database) -> list[str | None]:
    """Return the trace of each job that an event added."""
    return await db.read(lambda tx: tx.all(_TRACES))


async def organization(db: Database, org: Organization) -> Organization:
    """Return an organization as it is now."""
    return await db.read(lambda tx: orgs.get(tx, org.id))
