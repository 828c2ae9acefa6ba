"""Routes of function records: invocations, metrics and the live log."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from moorage.accounts.identity.caller import Caller
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http import sse
from moorage.core.http.answer import Stream
from moorage.core.http.models import QueryInput, QueryInt
from moorage.core.http.paging import Page, PageQuery
from moorage.core.http.request import Request
from moorage.core.http.route import Router
from moorage.core.kit.ids import parse_id
from moorage.products.functions.records import invocations, metrics, stream
from moorage.products.functions.records.recorder import Recorder
from moorage.products.functions.records.schemas import FunctionInvocation, FunctionMetrics, MetricsQuery


class TailQuery(QueryInput):
    tail: Annotated[QueryInt, Field(ge=0, le=100)] = 0


def make_router(db: Database, recorder: Recorder) -> Router:
    """Make the routes that read records; each lets the recorder catch up first."""
    router = Router("Functions")

    @router.get("/functions/{name}/invocations")
    async def list_invocations(caller: Caller, name: str, query: PageQuery) -> Page[FunctionInvocation]:
        """List a function's invocations, newest first, with their logs.

        The newest 10,000 of the last 30 days are kept. `logsCut` means that the page has more than 20 MB of logs and
        some are left out: request a smaller page. `logsDropped` means that some or all output of the call was not kept;
        a line in `stderr` says why.
        """
        await recorder.catch_up()
        rows, total = await db.read(
            lambda tx: invocations.page_of(tx, caller.org_id, name, most=query.page_size, offset=query.offset)
        )
        return Page(await invocations.with_texts(db, recorder.logs, caller.org_id, rows), total)

    @router.get("/functions/{name}/metrics")
    async def read_metrics(caller: Caller, name: str, query: MetricsQuery) -> FunctionMetrics:
        """Return invocations, errors and average latency (ms) over time.

        The response has at most 288 buckets. Without `fromMs` the range is the last 24 hours. Counters are kept for
        90 days.
        """
        await recorder.catch_up()
        return await db.read(lambda tx: metrics.metrics_of(tx, caller.org_id, name, query))

    @router.get("/functions/{name}/logs/stream", events=True)
    async def follow_logs(caller: Caller, name: str, query: TailQuery, request: Request) -> Stream:
        """Follow a function live, as server-sent events.

        Each log line is a `log` event, each ended invocation an `invocation` event. `tail` is the number of past
        invocations that come first. A client that reconnects with `Last-Event-ID`, as browsers do, misses no event.
        """
        await recorder.catch_up()
        last_event_id = parse_id(request.header(b"last-event-id") or "-")

        def begin(tx: Tx) -> tuple[int, int]:
            function_id = invocations.get_function_id(tx, caller.org_id, name)
            return function_id, stream.start_after(tx, caller.org_id, function_id, last_event_id, query.tail)

        function_id, last = await db.read(begin)
        return sse.stream(stream.follow(db, recorder, caller.org_id, function_id, last))

    return router
