"""Reads invocations: a page with logs, and the invocations after a given one."""

from __future__ import annotations

import asyncio
from functools import partial

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.errors import NotFound
from moorage.products.functions.logs import log_text, loglines
from moorage.products.functions.logs.log_files import FunctionLogs
from moorage.products.functions.logs.loglines import Texts
from moorage.products.functions.records import tables as records
from moorage.products.functions.records.schemas import FunctionInvocation
from moorage.products.functions.records.tables import Invocation

# One invocation may have 10 MB of logs, and a page 100 invocations. Logs beyond this limit are left out.
PAGE_LOG_BYTES = 20 * 2**20
_NO_TEXTS = Texts("", "", is_cut=False)


def get_function_id(tx: Tx, org_id: int, name: str) -> int:
    function_id = tx.find(records.FUNCTION_ID, org_id=org_id, name=name)
    if function_id is None:
        raise NotFound(f"There is no function {name!r}")
    return function_id


def page_of(tx: Tx, org_id: int, name: str, *, most: int, offset: int) -> tuple[list[Invocation], int]:
    """Return a page of a function's invocations, newest first, and the total number."""
    function_id = get_function_id(tx, org_id, name)
    total = tx.one(records.COUNT, function_id=function_id)
    return tx.all(records.PAGE, function_id=function_id, most=most, offset=offset), total


async def with_texts(db: Database, logs: FunctionLogs, org_id: int, rows: list[Invocation]) -> list[FunctionInvocation]:
    """Return invocations with their logs, up to PAGE_LOG_BYTES."""
    stored, left = {}, PAGE_LOG_BYTES
    for row in rows:
        if row.stored_size > records.SMALL and left > 0:
            left -= row.stored_size
            stored[row.id] = await db.read(partial(records.read_logs, org_id=org_id, row=row))
    return await asyncio.to_thread(_with_texts, logs, rows, stored)


def _with_texts(
    logs: FunctionLogs, rows: list[Invocation], stored: dict[int, bytes | None]
) -> list[FunctionInvocation]:
    items, left = [], PAGE_LOG_BYTES
    for row in rows:
        texts = _texts(logs, row, stored.get(row.id, row.small_logs), left)
        left -= len(texts.stdout) + len(texts.stderr)
        items.append(FunctionInvocation.of(row, texts))
    return items


def _texts(logs: FunctionLogs, row: Invocation, stored: bytes | None, left: int) -> Texts:
    if not row.stored_size and not row.log_ref:
        return _NO_TEXTS
    if left <= 0 or (row.stored_size and stored is None):
        return Texts("", "", is_cut=True)
    most = min(left, loglines.MAX_BLOCK_BYTES)
    return loglines.texts_of(log_text.block_of(logs, row, stored, most + 1), most)


def after(tx: Tx, org_id: int, function_id: int, last: int, *, most: int) -> list[Invocation]:
    """Return the invocations after the row id `last`, oldest first."""
    return [
        row for row in tx.all(records.AFTER, function_id=function_id, after=last, most=most) if row.org_id == org_id
    ]


def id_before_newest(tx: Tx, org_id: int, function_id: int, count: int) -> int:
    """Return the row id before the newest `count` invocations."""
    return tx.find(records.BEFORE_NEWEST, function_id=function_id, most=count) or 0
