"""Jobs after the deletion of a function or of an organization."""

from __future__ import annotations

import asyncio

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.core.db.tx import Tx
from moorage.core.worker.run import Handlers, Run
from moorage.products.functions import code, service
from moorage.products.functions.logs.log_files import FunctionLogs
from moorage.products.functions.publisher import Publisher
from moorage.products.functions.service import PurgeFunction


def register(handlers: Handlers, publisher: Publisher, logs: FunctionLogs) -> None:
    async def purge(run: Run, payload: PurgeFunction) -> None:
        await publisher.publish(payload.org_id, payload.function_id)
        await asyncio.to_thread(logs.forget, payload.org_id, payload.function_id)
        await code.remove_unused(run.db, payload.digests)

    handlers.add(PurgeFunction, purge)
    handlers.listen(OrganizationDeleted, delete_functions)


def delete_functions(tx: Tx, event: OrganizationDeleted) -> None:
    service.delete_all(tx, event.org_id)
