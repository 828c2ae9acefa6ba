"""Request a sync of the gateway's routes, in the transaction that changes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from moorage.core import jobs
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx

Settle = Callable[[], Awaitable[None]]  # returns when the gateway's routes match the database


class SettleGateway(msgspec.Struct, frozen=True, tag="projects.settle_gateway"):
    """Update the gateway's routes to match the database."""


@across_organizations("one gateway serves all organizations")
def ask(tx: Tx) -> None:
    jobs.add(tx, SettleGateway(), key="gateway", dedupe_key="gateway")
