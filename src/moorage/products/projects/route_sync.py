"""Asking for the gateway to be brought in line, from inside a transaction that changes what an address serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from moorage.core import jobs
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx

Settle = Callable[[], Awaitable[None]]  # returns when the gateway serves what the store says


class SettleGateway(msgspec.Struct, frozen=True, tag="projects.settle_gateway"):
    """Let the gateway serve what the store says."""


@across_organizations("one gateway serves everybody")
def ask(tx: Tx) -> None:
    jobs.add(tx, SettleGateway(), key="gateway", dedupe_key="gateway")
