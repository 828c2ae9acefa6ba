"""The two receivers. They trust a signature instead of a token, and answer without the envelope."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from typing import Any, cast

from moorage.accounts.webhooks import service, signatures
from moorage.accounts.webhooks.service import Delivery
from moorage.accounts.webhooks.signatures import Seal
from moorage.core import disk
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.answer import plain_json
from moorage.core.http.models import Output
from moorage.core.http.request import Request
from moorage.core.http.route import MB, Router, Scope
from moorage.errors import BadRequest

STRIPE_LIMIT = 1 * MB
GITHUB_LIMIT = 25 * MB  # GitHub's own cap; what is larger it does not send.
# More than this of a body goes to disk until its signature holds: strangers must not fill the memory.
IN_MEMORY = 1 * MB

Reader = Callable[[str, dict[str, Any]], Delivery]


class Received(Output, frozen=True):
    received: bool


class BadSignature(Exception):
    """The signature is missing, too old, or not the body's; or there is no secret to check it with."""


def make_router(db: Database) -> Router:
    router = Router("Webhooks", prefix="")
    settings, clock = db.env.settings, db.env.clock

    @router.post("/webhook", scope=Scope.PUBLIC, raw=True, is_counted=False, body_limit=STRIPE_LIMIT)
    async def receive_stripe_event(request: Request) -> Received:
        """Receive an event of the payment processor, signed in `Stripe-Signature`.

        It is recorded once, however often it is delivered. A signature older than five minutes is not accepted.
        """
        secret = settings.stripe_webhook_secret.get_secret_value()
        seal = signatures.stripe(secret, request.header(b"stripe-signature"), clock.now())
        return await _receive(db, request, seal, STRIPE_LIMIT, service.stripe_delivery)

    @router.post(
        "/api/v1/webhook/github-events", scope=Scope.PUBLIC, raw=True, is_counted=False, body_limit=GITHUB_LIMIT
    )
    async def receive_github_event(request: Request) -> Received:
        """Receive an event of the code-hosting app, signed in `X-Hub-Signature-256`.

        It is recorded once, however often it is delivered; `X-GitHub-Delivery` tells.
        """
        secret = settings.github_webhook_secret.get_secret_value()
        seal = signatures.github(secret, request.header(b"x-hub-signature-256"))
        delivery, event = request.header(b"x-github-delivery"), request.header(b"x-github-event")
        reader: Reader = lambda text, payload: service.github_delivery(text, payload, delivery, event)  # noqa: E731
        return await _receive(db, request, seal, GITHUB_LIMIT, reader)

    return router


async def _receive(db: Database, request: Request, seal: Seal | None, limit: int, reader: Reader) -> Received:
    try:
        body = await _signed_body(db, request, seal, limit)
        # Megabytes of JSON take a while, and other requests should not wait for it.
        delivery = reader(*await asyncio.to_thread(service.parse, body))
    except BadSignature:
        return _refusal(401, "invalid signature")
    except BadRequest as error:
        return _refusal(400, error.message)

    def unit(tx: Tx) -> None:
        tx.trace_id = request.trace_id
        service.record(tx, delivery)

    await db.write(unit)
    return Received(received=True)


async def _signed_body(db: Database, request: Request, seal: Seal | None, limit: int) -> bytes:
    """Return the body if its signature holds; raises BadSignature, or BadRequest where it is too large."""
    if seal is None:
        raise BadSignature
    folder = db.env.settings.folder("uploads")
    disk.check_room(folder, min(request.announced_bytes, limit), db.env.settings.disk_reserve_mb)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.SpooledTemporaryFile(IN_MEMORY, mode="w+b", dir=str(folder)) as kept:
        if not request.consumed:
            async for chunk in request.chunks(limit):
                seal.update(chunk)
                kept.write(chunk)
        if not seal.holds():
            raise BadSignature
        kept.seek(0)
        return kept.read()


def _refusal(status: int, why: str) -> Received:
    """Return a refusal. A handler's type documents its success; the dispatcher passes a whole answer on as it is."""
    return cast(Received, plain_json({"error": why}, status))
