"""Request a sync of the gateway's routes, in the transaction that changes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from moorage.core import jobs
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx

SyncRoutes = Callable[[], Awaitable[None]]  # returns when the gateway's routes match the database


class SyncGateway(msgspec.Struct, frozen=True, tag="projects.settle_gateway"):
    """Update the gateway's routes to match the database."""


@across_organizations("one gateway serves all organizations")
def request(tx: Tx) -> None:
    jobs.add(tx, SyncGateway(), key="gateway", dedupe_key="gateway")
