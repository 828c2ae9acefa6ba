"""Keeps the function gateway told: which functions there are, and what each is made of.

The gateway never asks. It is told everything when it starts or comes back, and each change as it happens; a comparison
now and then finds what slipped through, such as changes that other processes made. Whoever pushes reads the store and
sends what it read under one lock, so the gateway never hears of an older state after a newer one.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.query import Query
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.telemetry import Telemetry
from moorage.errors import MoorageError
from moorage.products.functions import code, tables, variables
from moorage.products.functions.edge_client import EdgeClient, EdgeRoute
from moorage.products.functions.logs.hidden_values import HiddenValues
from moorage.products.functions.tables import Deployed, Function, function
from moorage.products.functions.variables import Variables
from moorage.settings import Settings

LOOK_S = 0.25  # A gateway that came back knows no function until it is told.
COMPARE_S = {"sqlite": 5.0, "postgresql": 1.0}  # On PostgreSQL other processes write too.
SETTLE_S = 3.0
UNPACKERS = 4
PAGE = 500
NEVER: Final = object()
Named = tuple[int, int]  # the organization and the function

_f = function.c
REVISIONS: Query[tuple[int, int, int]] = Query(
    select(_f.id, _f.org_id, _f.revision), lambda *row: (row[0], row[1], row[2])
)


@dataclass(frozen=True, slots=True)
class Published:
    """A function with its code and variables; None for variables that cannot be decrypted."""

    deployed: Deployed
    variables: Variables | None

    @property
    def digest(self) -> str:
        return self.deployed.digest


class Publisher:
    def __init__(
        self,
        db: Database,
        settings: Settings,
        edge: EdgeClient,
        artifacts: ArtifactStore,
        telemetry: Telemetry,
        hidden: HiddenValues,
    ) -> None:
        self.db = db
        self.settings = settings
        self.edge = edge
        self.artifacts = artifacts
        self.telemetry = telemetry
        self.hidden = hidden
        self._pushing = asyncio.Lock()
        self._unpacking = asyncio.Semaphore(UNPACKERS)
        self._told: Any = NEVER  # which start of the gateway was told everything
        self._pushed: dict[int, int] = {}  # the revision it has of each function
        self._unusable: dict[int, int] = {}  # revisions whose code could not be had, to say so once
        self._compare_at = 0.0
        self._ready = asyncio.Event()

    async def run(self) -> None:
        """Keep the gateway told until cancelled."""
        while True:
            try:
                await self.turn()
            except Exception as error:  # noqa: BLE001 - the loop outlives whatever a turn meets
                self.telemetry.crashed(None, error, where="publisher")
            await asyncio.sleep(LOOK_S)

    async def turn(self) -> None:
        """Tell a gateway that has just started everything, any other what changed; do nothing while it is away."""
        try:
            started = (await self.edge.health()).started
            if self._told is NEVER or started != self._told:
                await self._push_all(started)
            if time.monotonic() >= self._compare_at:
                await self.compare()
        except MoorageError as error:
            if self._told is not NEVER:
                self.telemetry.log.warning("the function gateway is away", why=error.message)
            self._told = NEVER

    async def compare(self) -> None:
        """Push what the gateway should know and does not."""
        # Noted before the store is read: what is pushed meanwhile is younger than the rows, and not gone.
        had = set(self._pushed)
        rows = await self.db.read(_revisions)
        self._compare_at = time.monotonic() + COMPARE_S[self.db.dialect]
        changed = [(org_id, id_) for id_, org_id, revision in rows if self._pushed.get(id_) != revision]
        gone = had - {row[0] for row in rows}
        await self._push([*changed, *((0, id_) for id_ in gone)])

    async def settle(self, org_id: int, function_id: int) -> None:
        """Return when the gateway knows a function as it is in the store now, or that it is gone.

        It is not waited for long: what it could not be told it is told when it is back.
        """
        if not self.edge.is_expected:
            return
        try:
            await self._push([(org_id, function_id)], within_s=SETTLE_S)
        except Exception as error:  # noqa: BLE001 - the change is made; telling of it is done again by `run`
            self.telemetry.log.warning("a function is not published yet", function=function_id, why=str(error))

    async def ready(self, within_s: float) -> bool:
        """Wait for the gateway to be told everything for the first time; return whether it was."""
        try:
            await asyncio.wait_for(self._ready.wait(), within_s)
        except TimeoutError:
            return False
        return True

    async def _push_all(self, started: Any) -> None:
        """Replace everything the gateway knows. Code that is missing here is fetched afterwards, by a comparison."""
        async with self._pushing:
            found = await self.db.read(_all_deployed)
            routes = [self._route(each) for each in found if self._is_there(each) and await self._unpack(each)]
            await self.edge.put_routes(routes)
            self._pushed = {route.id: route.revision for route in routes}
            self._told = started
            self._compare_at = 0.0
        self._ready.set()
        self.telemetry.log.info("the function gateway was told everything", functions=len(routes))

    async def _push(self, wanted: list[Named], within_s: float | None = None) -> None:
        """Push some functions, or that they are gone; raises where the gateway does not take them in time."""
        while wanted:
            found = [each for each in await self.db.read(lambda tx: _deployed(tx, wanted)) if each is not None]  # noqa: B023 - awaited before the next turn
            usable = await asyncio.gather(*(self._unpack(each) for each in found))
            unpacked = {each.digest for each, is_usable in zip(found, usable, strict=True) if is_usable}
            async with asyncio.timeout(within_s), self._pushing:
                missing = await self._push_unpacked(wanted, unpacked)
            # Of these another version was deployed meanwhile, and its code comes first.
            tried = {each.digest for each in found}
            wanted = [named for named, digest in missing if digest not in tried]

    async def _push_unpacked(self, wanted: list[Named], unpacked: set[str]) -> list[tuple[Named, str]]:
        """Push what the store says now, and return those whose code is not here, with its digest."""
        latest = list(zip(wanted, await self.db.read(lambda tx: _deployed(tx, wanted)), strict=True))
        drop = [id_ for (_, id_), found in latest if found is None]
        routes = [self._route(found) for _, found in latest if found is not None and found.digest in unpacked]
        if drop or routes:
            await self.edge.change_routes(routes, drop)
        for id_ in drop:
            self._pushed.pop(id_, None)
            self.hidden.drop(id_)
        self._pushed.update({route.id: route.revision for route in routes})
        return [(named, found.digest) for named, found in latest if found is not None and found.digest not in unpacked]

    def _is_there(self, each: Published) -> bool:
        return code.folder_of(self.settings, each.digest).is_dir()

    async def _unpack(self, each: Published) -> bool:
        """Make sure that a function can be published: its code is unpacked here and its variables are readable.

        Return False, having logged why, where it cannot.
        """
        its = each.deployed.function
        if each.variables is None:
            self._log_unusable(its, "a variable or secret cannot be decrypted with the keys of this platform")
            return False
        try:
            async with self._unpacking:
                await code.ensure_unpacked(self.settings, self.artifacts, its.org_id, each.digest)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one function's code, the others go out
            self._log_unusable(its, f"its code cannot be unpacked: {error}")
            return False
        self._unusable.pop(its.id, None)
        return True

    def _log_unusable(self, its: Function, why: str) -> None:
        if self._unusable.get(its.id) != its.revision:
            self._unusable[its.id] = its.revision
            self.telemetry.log.error("a function cannot be published", function=its.id, why=why)

    def _route(self, each: Published) -> EdgeRoute:
        """Return what the gateway is told. The recorder knows the secrets before the gateway does."""
        assert each.variables is not None
        self.hidden.put(each.deployed.function.id, each.variables.secrets.values())
        return _route(each.deployed, each.variables)


@across_organizations("each function is named with its organization")
def _deployed(tx: Tx, wanted: list[Named]) -> list[Published | None]:
    return [_find(tx, org_id, id_) for org_id, id_ in wanted]


def _find(tx: Tx, org_id: int, function_id: int) -> Published | None:
    deployed = tx.find(tables.DEPLOYED, org_id=org_id, id=function_id)
    if deployed is None:
        return None
    try:
        return Published(deployed, variables.read(tx, org_id, function_id))
    except CannotDecrypt:
        return Published(deployed, None)


@across_organizations("the gateway serves the functions of every organization")
def _all_deployed(tx: Tx) -> list[Published]:
    found: list[Deployed] = []
    while page := tx.all(tables.ALL_DEPLOYED, after=found[-1].function.id if found else 0, most=PAGE):
        found += page
    known = variables.read_all(tx)
    return [Published(each, known.get(each.function.id, Variables())) for each in found]


@across_organizations("the gateway serves the functions of every organization")
def _revisions(tx: Tx) -> list[tuple[int, int, int]]:
    return tx.all(REVISIONS)


def _route(deployed: Deployed, its_variables: Variables) -> EdgeRoute:
    its = deployed.function
    return EdgeRoute(
        id=its.id,
        org=str(its.org_id),
        name=its.name,
        revision=its.revision,
        version=its.current_version,
        runtime=its.runtime,
        digest=deployed.digest,
        main=deployed.main,
        timeout_ms=its.timeout_ms,
        memory_mb=its.memory_mb,
        env=its_variables.merged(),
        network=its.network,
        raw_http=its.raw_http,
        own_options=its.own_options,
    )
