"""Create the database of an app that does not start without one, at its first deployment.

The product of databases creates the database; a project gets at most one this way. Decision 72 has the rules.
"""

from __future__ import annotations

import asyncio
from functools import partial

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.kit.records import dataclass
from moorage.products.projects.deployments.logs import LogWriter
from moorage.products.projects.deployments.runner import Write
from moorage.products.projects.deployments.tables import Deployment

READY_TIMEOUT_S = 180.0  # The software of the first database may be downloaded.
POLL_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class Created:
    """A database that was created, or why it was not; `reason` is "" where no one has to know."""

    name: str = ""
    reason: str = ""


# Create a database of an engine for the project of a deployment, and link them.
CREATE: Hook[[Tx, int, Deployment, str], Created] = Hook("app.create_database")
# Return whether a database accepts connections; None once it cannot any more.
IS_READY: Hook[[Tx, int, str], bool | None] = Hook("app.is_database_ready")


async def create(db: Database, deployment: Deployment, engine: str, write: Write, log: LogWriter) -> bool:
    """Create the first database of a project; return whether the app can be started with it."""

    def unit(tx: Tx) -> Created:
        results = tx.env.hooks.call(CREATE, tx, deployment.org_id, deployment, engine)
        return next(iter(results), Created())

    created: Created = await write(unit)
    if created.reason:
        log.say(f"note: {created.reason}")
    if not created.name or not await _wait_until_ready(db, deployment.org_id, created.name):
        return False
    kind = {"postgresql": "PostgreSQL", "mysql": "MySQL"}[engine]
    log.say(
        f"The app needs a {kind}, so the database {created.name} of the tier free was created and linked; "
        f"`moorage databases delete {created.name}` removes it"
    )
    return True


async def _wait_until_ready(db: Database, org_id: int, name: str) -> bool:
    deadline = asyncio.get_running_loop().time() + READY_TIMEOUT_S
    while asyncio.get_running_loop().time() < deadline:
        states = await db.read(partial(_states, org_id=org_id, name=name))
        if None in states:
            return False
        if states and all(states):
            return True
        await asyncio.sleep(POLL_INTERVAL_S)
    return False


def _states(tx: Tx, org_id: int, name: str) -> list[bool | None]:
    return tx.env.hooks.call(IS_READY, tx, org_id, name)
