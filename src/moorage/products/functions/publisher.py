"""Pushes the routes of all functions to the edge.

The edge never queries the database. It gets all routes when it starts or reconnects, and each change at once; a
periodic comparison finds the rest, such as changes by other processes. A push reads the database and sends the result
under one lock, so that the edge never gets an older state after a newer one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from sqlalchemy import select

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.query import Query
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.records import dataclass
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.errors import MoorageError
from moorage.products.functions import code, tables, variables
from moorage.products.functions.edge_client import EdgeClient, EdgeRoute
from moorage.products.functions.logs.hidden_values import HiddenValues
from moorage.products.functions.tables import Deployed, Function, function
from moorage.products.functions.variables import Variables
from moorage.settings import Settings

EDGE_POLL_INTERVAL_S = 0.25  # while the edge does not answer or lacks changes; a new edge process wakes the publisher
EDGE_CHECK_INTERVAL_S = 5.0  # otherwise, in case the wake-up was lost
COMPARE_INTERVAL_S = {"sqlite": 5.0, "postgresql": 1.0}  # On PostgreSQL other processes write too.
PUBLISH_TIMEOUT_S = 3.0
MAX_CONCURRENT_UNPACKS = 4
PAGE = 500
NEVER: Final = object()
FunctionKey = tuple[int, int]  # organization id and function id

_f = function.c
REVISIONS: Query[tuple[int, int, int]] = Query(
    select(_f.id, _f.org_id, _f.revision), lambda *row: (row[0], row[1], row[2])
)


@dataclass(frozen=True, slots=True)
class Published:
    """A function with its code and variables; None if decryption failed."""

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
        self.elsewhere: Callable[[int, int], Awaitable[None]] | None = None  # publishes to edges on other machines
        self._pushing = asyncio.Lock()
        self._unpacking = asyncio.Semaphore(MAX_CONCURRENT_UNPACKS)
        self._synced_start: Any = NEVER  # the start of the edge process that got all routes
        self._pushed: dict[int, int] = {}  # the revision of each function at the edge
        self._unusable: dict[int, int] = {}  # revisions that cannot be published, to log each once
        self._compare_at = 0.0
        self._compared: int | None = None  # number of commits at the last comparison
        self._rounds = Rounds(telemetry, "publisher", EDGE_POLL_INTERVAL_S, db.commits, settled_s=EDGE_CHECK_INTERVAL_S)
        self._ready = asyncio.Event()

    async def run(self) -> None:
        """Keep the routes of the edge up to date until cancelled."""
        await self._rounds.run(self.sync)

    def wake(self) -> None:
        """Compare the routes now: the edge has started."""
        self._rounds.wake()

    async def sync(self) -> bool:
        """Push all routes to a new edge process, else the changes; no-op if unreachable.

        Returns whether the edge has every committed change.
        """
        commits = self.db.commits
        seen = commits.count if commits is not None else None
        try:
            started = (await self.edge.health()).started
            if self._synced_start is NEVER or started != self._synced_start:
                await self._push_all(started)
            if (seen is None or seen != self._compared) and time.monotonic() >= self._compare_at:
                await self.compare()
                self._compared = seen
        except MoorageError as error:
            if self._synced_start is not NEVER:
                self.telemetry.log.warning("the edge does not answer; all routes are pushed again", why=error.message)
            self._synced_start = NEVER
            return False
        return seen is not None and seen == self._compared

    async def compare(self) -> None:
        """Push the functions with another revision than at the edge."""
        # Copied before the read: a function pushed during the read is newer than the rows, not deleted.
        known = set(self._pushed)
        rows = await self.db.read(_revisions)
        self._compare_at = time.monotonic() + COMPARE_INTERVAL_S[self.db.dialect]
        changed = [(org_id, id_) for id_, org_id, revision in rows if self._pushed.get(id_) != revision]
        deleted = known - {row[0] for row in rows}
        await self._push([*changed, *((0, id_) for id_ in deleted)])

    async def publish(self, org_id: int, function_id: int) -> None:
        """Wait until the edge has the current state of a function, or its deletion.

        Waits at most PUBLISH_TIMEOUT_S; `run` repeats a failed push.
        """
        try:
            if self.elsewhere is not None:
                async with asyncio.timeout(PUBLISH_TIMEOUT_S):
                    await self.elsewhere(org_id, function_id)
            if self.edge.is_expected:
                await self._push([(org_id, function_id)], within_s=PUBLISH_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - the change is committed; `run` repeats the push
            self.telemetry.log.warning("a function is not published yet", function=function_id, why=str(error))

    async def ready(self, within_s: float) -> bool:
        """Wait for the first push of all routes; return whether it happened in time."""
        try:
            await asyncio.wait_for(self._ready.wait(), within_s)
        except TimeoutError:
            return False
        return True

    async def _push_all(self, started: Any) -> None:
        """Replace all routes of the edge; a comparison adds functions with missing code."""
        async with self._pushing:
            functions = await self.db.read(_all_deployed)
            routes = [self._route(each) for each in functions if self._is_unpacked(each) and await self._unpack(each)]
            await self.edge.put_routes(routes)
            self._pushed = {route.id: route.revision for route in routes}
            self._synced_start = started
            self._compare_at = 0.0
            self._compared = None
        self._ready.set()
        self.telemetry.log.info("all routes were pushed to the edge", functions=len(routes))

    async def _push(self, keys: list[FunctionKey], within_s: float | None = None) -> None:
        """Push functions or their deletion; raises if the edge does not accept in time."""
        while keys:
            functions = [each for each in await self.db.read(lambda tx: _deployed(tx, keys)) if each is not None]  # noqa: B023 - awaited before the next turn
            usable = await asyncio.gather(*(self._unpack(each) for each in functions))
            unpacked = {each.digest for each, is_usable in zip(functions, usable, strict=True) if is_usable}
            async with asyncio.timeout(within_s), self._pushing:
                missing = await self._push_unpacked(keys, unpacked)
            # A newer version of these functions was deployed during the unpacking: unpack it, and push again.
            tried = {each.digest for each in functions}
            keys = [key for key, digest in missing if digest not in tried]

    async def _push_unpacked(self, keys: list[FunctionKey], unpacked: set[str]) -> list[tuple[FunctionKey, str]]:
        """Push the current state; return functions with other code, and its digest."""
        latest = list(zip(keys, await self.db.read(lambda tx: _deployed(tx, keys)), strict=True))
        drop = [id_ for (_, id_), each in latest if each is None]
        routes = [self._route(each) for _, each in latest if each is not None and each.digest in unpacked]
        if drop or routes:
            await self.edge.change_routes(routes, drop)
        for id_ in drop:
            self._pushed.pop(id_, None)
            self.hidden.drop(id_)
        self._pushed.update({route.id: route.revision for route in routes})
        return [(key, each.digest) for key, each in latest if each is not None and each.digest not in unpacked]

    def _is_unpacked(self, each: Published) -> bool:
        return code.folder_of(self.settings, each.digest).is_dir()

    async def _unpack(self, each: Published) -> bool:
        """Unpack the code of a function; log and return False if it cannot be published."""
        function = each.deployed.function
        if each.variables is None:
            self._log_unusable(function, "a variable or secret cannot be decrypted with the keys of this platform")
            return False
        try:
            async with self._unpacking:
                await code.ensure_unpacked(self.settings, self.artifacts, function.org_id, each.digest)
        except Exception as error:  # noqa: BLE001 - one broken package must not stop the other functions
            self._log_unusable(function, f"its code cannot be unpacked: {error}")
            return False
        self._unusable.pop(function.id, None)
        return True

    def _log_unusable(self, function: Function, why: str) -> None:
        if self._unusable.get(function.id) != function.revision:
            self._unusable[function.id] = function.revision
            self.telemetry.log.error("a function cannot be published", function=function.id, why=why)

    def _route(self, each: Published) -> EdgeRoute:
        """Return the route; the log recorder gets the secrets before the edge does."""
        assert each.variables is not None
        self.hidden.put(each.deployed.function.id, each.variables.secrets.values())
        return _route(each.deployed, each.variables)


@across_organizations("each key names the function's organization")
def _deployed(tx: Tx, keys: list[FunctionKey]) -> list[Published | None]:
    return [_find(tx, org_id, id_) for org_id, id_ in keys]


def _find(tx: Tx, org_id: int, function_id: int) -> Published | None:
    deployed = tx.find(tables.DEPLOYED, org_id=org_id, id=function_id)
    if deployed is None:
        return None
    try:
        return Published(deployed, variables.read(tx, org_id, function_id))
    except CannotDecrypt:
        return Published(deployed, None)


@across_organizations("the edge serves the functions of every organization")
def _all_deployed(tx: Tx) -> list[Published]:
    deployed: list[Deployed] = []
    while page := tx.all(tables.ALL_DEPLOYED, after=deployed[-1].function.id if deployed else 0, most=PAGE):
        deployed += page
    by_function = variables.read_all(tx)
    return [Published(each, by_function.get(each.function.id, Variables())) for each in deployed]


@across_organizations("the edge serves the functions of every organization")
def _revisions(tx: Tx) -> list[tuple[int, int, int]]:
    return tx.all(REVISIONS)


def _route(deployed: Deployed, function_variables: Variables) -> EdgeRoute:
    function = deployed.function
    return EdgeRoute(
        id=function.id,
        org=str(function.org_id),
        name=function.name,
        revision=function.revision,
        version=function.current_version,
        runtime=function.runtime,
        digest=deployed.digest,
        main=deployed.main,
        timeout_ms=function.timeout_ms,
        memory_mb=function.memory_mb,
        env=function_variables.merged(),
        network=function.network,
        raw_http=function.raw_http,
        own_options=function.own_options,
        secrets=sorted(function_variables.secrets),
    )
