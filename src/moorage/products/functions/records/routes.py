"""What is recorded of functions: invocations, metrics and the live log."""

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
from moorage.products.functions.records.invocations import FunctionInvocation
from moorage.products.functions.records.metrics import FunctionMetrics, MetricsQuery
from moorage.products.functions.records.recorder import Recorder


class TailQuery(QueryInput):
    tail: Annotated[QueryInt, Field(ge=0, le=100)] = 0


def make_router(db: Database, recorder: Recorder) -> Router:
    """The routes that read records. Each first has the recorder store what the gateway wrote up to now."""
    router = Router("Functions")

    @router.get("/functions/{name}/invocations")
    async def list_invocations(caller: Caller, name: str, query: PageQuery) -> Page[FunctionInvocation]:
        """List a function's invocations, newest first, with what each printed.

        The newest 10,000 of the last 30 days are kept. `logsCut` says that the page holds more than 20 MB of logs and
        that some are left out: ask for a smaller page. `logsDropped` says that what the call printed was not kept, or
        not all of it; a line in `stderr` says why.
        """
        await recorder.catch_up()
        rows, total = await db.read(lambda tx: invocations.page_of(tx, caller.org_id, name, query))
        return Page(await invocations.with_texts(db, recorder.logs, caller.org_id, rows), total)

    @router.get("/functions/{name}/metrics")
    async def read_metrics(caller: Caller, name: str, query: MetricsQuery) -> FunctionMetrics:
        """Return invocations, errors and average latency (ms) over time, in at most 288 buckets.

        Without `fromMs` it is the last 24 hours. Minutes are counted for 90 days.
        """
        await recorder.catch_up()
        return await db.read(lambda tx: metrics.metrics_of(tx, caller.org_id, name, query))

    @router.get("/functions/{name}/logs/stream", events=True)
    async def follow_logs(caller: Caller, name: str, query: TailQuery, request: Request) -> Stream:
        """Follow a function live, as server-sent events: `log` for each line, then `invocation` for what came of it.

        `tail` says how many past invocations come first. A client that was cut off sends `Last-Event-ID`, as browsers
        do, and misses nothing.
        """
        await recorder.catch_up()
        seen = parse_id(request.header(b"last-event-id") or "-")

        def begin(tx: Tx) -> tuple[int, int]:
            function_id = invocations.get_function_id(tx, caller.org_id, name)
            return function_id, stream.place_of(tx, caller.org_id, function_id, seen, query.tail)

        function_id, place = await db.read(begin)
        return sse.stream(stream.follow(db, recorder, caller.org_id, function_id, place))

    return router
