"""What is left to do when a function, or its organization, is deleted."""

from __future__ import annotations

import asyncio

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.core.db.tx import Tx
from moorage.core.worker.run import Handlers, Run
from moorage.products.functions import code, service
from moorage.products.functions.logs.log_files import FunctionLogs
from moorage.products.functions.publisher import Publisher
from moorage.products.functions.service import ForgetFunction


def register(handlers: Handlers, publisher: Publisher, logs: FunctionLogs) -> None:
    async def forget(run: Run, payload: ForgetFunction) -> None:
        await publisher.settle(payload.org_id, payload.function_id)
        await asyncio.to_thread(logs.forget, payload.org_id, payload.function_id)
        await code.remove_unused(run.db, payload.digests)

    handlers.add(ForgetFunction, forget)
    handlers.listen(OrganizationDeleted, delete_functions)


def delete_functions(tx: Tx, event: OrganizationDeleted) -> None:
    service.delete_all(tx, event.org_id)
