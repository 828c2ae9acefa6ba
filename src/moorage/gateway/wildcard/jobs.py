"""Maintenance of the wildcard certificate: order, renewal, and delays after failed orders."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
from cryptography import x509

from moorage.core import jobs
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane
from moorage.core.kit.clock import SECOND_MS, to_wire
from moorage.core.worker.run import Handlers, Run
from moorage.gateway.wildcard import ordering, state
from moorage.gateway.wildcard.errors import CannotOrder
from moorage.gateway.wildcard.state import Failures, Ordered
from moorage.settings import Settings

KIND = "gateway.wildcard"
CRON = "*/5 * * * *"
# Certificate authorities allow five failed validations of a name an hour, so the delays grow fast.
RETRY_S = (300, 900, 3600, 7200, 14_400, 28_800)
MAX_DELAY_S = 86_400  # also where the authority asks for a longer one
RENEW_FRACTION = 3  # renewed when this fraction of its life is left: a third


class OrderCertificate(msgspec.Struct, frozen=True, tag="gateway.order_certificate"):
    """Order the wildcard certificate, unless there is one that is valid for long enough."""


def register(handlers: Handlers, log: Any) -> None:
    """Register the maintenance task; jobs of one key run one at a time, also on several machines."""

    async def run(run: Run, _: OrderCertificate) -> None:
        await _order_if_due(run, log)

    handlers.maintain(KIND, CRON, OrderCertificate(), run)


def request(tx: Tx) -> None:
    """Run the task now: a start is not the time of a tick."""
    jobs.add(tx, OrderCertificate(), key=KIND, dedupe_key=KIND, lane=Lane.CHORES)


async def _order_if_due(run: Run, log: Any) -> None:
    settings, now = run.db.env.settings, run.db.env.clock.now()
    ordered, failures = await run.read(lambda tx: (state.find_ordered(tx), state.find_failures(tx)))
    if failures is not None and now < failures.next_at <= now + MAX_DELAY_S * SECOND_MS:
        return
    if ordered is not None and not await asyncio.to_thread(is_due, ordered, settings, now):
        return
    count = failures.count + 1 if failures is not None else 1
    # Before the order: one that ends with the process delays the next one, too.
    await _delay(run, count, CannotOrder("it has not ended"))
    names = state.names_of(settings)
    try:
        bundle = await ordering.order(settings, names, log)
    except CannotOrder as error:
        next_at = await _delay(run, count, error)
        log.warning("the wildcard certificate was not issued", why=str(error), next=to_wire(next_at))
        return
    await run.write(lambda tx: state.put_ordered(tx, Ordered(settings.acme_directory, bundle.decode())))
    log.info("the wildcard certificate was issued", names=names, authority=settings.acme_directory)


async def _delay(run: Run, count: int, error: CannotOrder) -> int:
    """Store the time of the next order and return it. It holds for the same settings, also after a restart."""
    delay_s = min(max(RETRY_S[min(count, len(RETRY_S)) - 1], error.retry_after_s), MAX_DELAY_S)
    next_at, why = run.db.env.clock.now() + int(delay_s * SECOND_MS), str(error)
    await run.write(lambda tx: state.put_failures(tx, Failures(state.fingerprint(tx), count, next_at, why)))
    return next_at


def is_due(ordered: Ordered, settings: Settings, now_ms: int) -> bool:
    """Return whether a third of its life or less is left, or its names or authority are not the present ones."""
    certificate = x509.load_pem_x509_certificates(ordered.bundle.encode())[0]
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if ordered.directory != settings.acme_directory:
        return True
    if set(names.get_values_for_type(x509.DNSName)) != set(state.names_of(settings)):
        return True
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return end - datetime.fromtimestamp(now_ms / 1000, UTC) <= (end - start) / RENEW_FRACTION
