"""Routes that receive webhooks of Stripe and GitHub.

They authenticate by signature instead of a token, and respond without the envelope.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from functools import partial
from typing import IO, Any, cast

from moorage.accounts.webhooks import service, signatures
from moorage.accounts.webhooks.service import Delivery
from moorage.accounts.webhooks.signatures import BodySignature
from moorage.accounts.webhooks.unverified import UnverifiedBodies
from moorage.core import disk
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.answer import plain_json
from moorage.core.http.limits.rate import address_key
from moorage.core.http.models import Output
from moorage.core.http.request import ClientGone, Request
from moorage.core.http.route import MB, Router, Scope
from moorage.errors import BadRequest, RateLimited

STRIPE_LIMIT = 1 * MB
GITHUB_LIMIT = 25 * MB  # GitHub does not send larger bodies.
# Larger bodies go to disk until the signature is verified: unauthenticated requests must not fill the memory.
MAX_IN_MEMORY = 1 * MB
RECEIVE_TIMEOUT_S = 30.0  # Both providers give up earlier.

Reader = Callable[[str, dict[str, Any]], Delivery]


class Received(Output, frozen=True):
    received: bool


class BadSignature(Exception):
    """The signature is missing, too old or wrong, or no secret is configured."""


def make_router(db: Database) -> Router:
    router = Router("Webhooks", prefix="")
    settings, clock = db.env.settings, db.env.clock
    inbox = _Inbox(db)

    @router.post(
        "/webhook",
        scope=Scope.PUBLIC,
        raw=True,
        is_counted=False,
        body_limit=STRIPE_LIMIT,
        webhook_headers=("Stripe-Signature",),
    )
    async def receive_stripe_event(request: Request) -> Received:
        """Receive an event of the payment processor, signed in `Stripe-Signature`.

        Repeated deliveries are recorded once. A signature older than five minutes is rejected.
        """
        secret = settings.stripe_webhook_secret.get_secret_value()
        signature = signatures.stripe(secret, request.header(b"stripe-signature"), clock.now())
        return await _receive(inbox, request, signature, STRIPE_LIMIT, service.stripe_delivery)

    @router.post(
        "/api/v1/webhook/github-events",
        scope=Scope.PUBLIC,
        raw=True,
        is_counted=False,
        body_limit=GITHUB_LIMIT,
        webhook_headers=("X-Hub-Signature-256", "X-GitHub-Delivery", "X-GitHub-Event"),
    )
    async def receive_github_event(request: Request) -> Received:
        """Receive an event of the code-hosting app, signed in `X-Hub-Signature-256`.

        Repeated deliveries, with the same `X-GitHub-Delivery`, are recorded once.
        """
        secret = settings.github_webhook_secret.get_secret_value()
        signature = signatures.github(secret, request.header(b"x-hub-signature-256"))
        delivery, event = request.header(b"x-github-delivery"), request.header(b"x-github-event")
        reader: Reader = lambda text, payload: service.github_delivery(text, payload, delivery, event)  # noqa: E731
        return await _receive(inbox, request, signature, GITHUB_LIMIT, reader)

    return router


async def _receive(
    inbox: _Inbox, request: Request, signature: BodySignature | None, limit: int, reader: Reader
) -> Received:
    try:
        body = await inbox.read(request, signature, limit)
        # In a thread: parsing megabytes of JSON would block other requests.
        delivery = reader(*await asyncio.to_thread(service.parse, body))
    except BadSignature:
        return _error(401, "invalid signature")
    except BadRequest as error:
        return _error(400, error.message)
    except RateLimited as error:
        return _error(429, error.message)

    def unit(tx: Tx) -> None:
        tx.trace_id = request.trace_id
        service.record(tx, delivery)

    await inbox.db.write(unit)
    return Received(received=True)


class _Inbox:
    """Reads signed bodies within the limits of unverified ones."""

    def __init__(self, db: Database) -> None:
        self.db = db
        settings = db.env.settings
        self._folder = settings.folder("uploads")
        self._check_room = partial(disk.check_room, self._folder, reserve_mb=settings.disk_reserve_mb)
        self._bodies = UnverifiedBodies()

    async def read(self, request: Request, signature: BodySignature | None, limit: int) -> bytes:
        """Return the verified body; raises BadSignature, BadRequest or RateLimited.

        A body without a valid signature counts against the rate limit of the client's address.
        """
        if signature is None:
            raise BadSignature
        self._check_room(more_bytes=min(request.announced_bytes, limit))
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.SpooledTemporaryFile(MAX_IN_MEMORY, mode="w+b", dir=str(self._folder)) as file:
            try:
                with self._bodies.hold(address_key(request.client)) as count:
                    async with asyncio.timeout(RECEIVE_TIMEOUT_S):
                        await self._store(request, signature, limit, file, count)
                if not signature.is_valid():
                    raise BadSignature
            except (BadSignature, BadRequest, ClientGone):
                request.count_failure()
                raise
            except TimeoutError:
                request.count_failure()
                raise BadRequest("The body came too slowly") from None
            file.seek(0)
            return file.read()

    async def _store(
        self, request: Request, signature: BodySignature, limit: int, file: IO[bytes], count: Callable[[int], None]
    ) -> None:
        if request.consumed:
            return
        unchecked = 0
        async for chunk in request.chunks(limit):
            count(len(chunk))
            unchecked += len(chunk)
            if unchecked >= disk.CHECK_INTERVAL_BYTES:
                unchecked = 0
                self._check_room(more_bytes=len(chunk))
            signature.update(chunk)
            file.write(chunk)


def _error(status: int, why: str) -> Received:
    """Return an error response; the cast keeps the handler's documented result type."""
    return cast(Received, plain_json({"error": why}, status))
