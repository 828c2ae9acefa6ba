"""Names on the wire of invocations, their logs and metrics."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from moorage.core.http.models import Output, QueryInput, QueryInt
from moorage.core.kit.clock import to_wire
from moorage.products.functions.logs.loglines import Texts
from moorage.products.functions.records.tables import Invocation
from moorage.runtime.edge.spool import STDOUT, Entry

_LAST_MS = 253_402_300_799_999  # the end of the year 9999

_Moment = Annotated[QueryInt, Field(ge=0, le=_LAST_MS)]


class MetricsQuery(QueryInput):
    from_ms: _Moment | None = None
    to_ms: _Moment | None = None


class FunctionMetrics(Output, frozen=True):
    """Parallel lists with one element for each bucket."""

    timestamps: list[str]
    invocations: list[int]
    errors: list[int]
    latency: list[float | None]


class LogLine(Output, frozen=True):
    message: str
    timestamp: str
    stream: str
    activation_id: str

    @classmethod
    def of(cls, entry: Entry, activation_id: str) -> LogLine:
        stream = "stdout" if entry.stream == STDOUT else "stderr"
        return cls(entry.text.removesuffix("\n"), to_wire(entry.at_ms), stream, activation_id)


class InvocationSummary(Output, frozen=True):
    """An invocation without its logs."""

    id: int
    duration: float
    status: str
    error: str | None
    timestamp: str
    activation_id: str
    version: int
    door: str
    wait_ms: float
    cold_start: bool

    @classmethod
    def of(cls, row: Invocation) -> InvocationSummary:
        return cls(**_common(row))


class FunctionInvocation(Output, frozen=True):
    id: int
    duration: float
    status: str
    error: str | None
    stdout: str
    stderr: str
    timestamp: str
    activation_id: str
    version: int
    door: str
    wait_ms: float
    cold_start: bool
    logs_cut: bool  # the page's logs are too large for one response; a smaller page shows more of them
    logs_dropped: bool  # some or all of its output was not kept; `stderr` says why

    @classmethod
    def of(cls, row: Invocation, texts: Texts) -> FunctionInvocation:
        return cls(
            **_common(row),
            stdout=texts.stdout,
            stderr=texts.stderr,
            logs_cut=texts.is_cut,
            logs_dropped=texts.is_dropped,
        )


def _common(row: Invocation) -> dict[str, Any]:
    return {
        "id": row.id,
        "duration": row.duration_us / 1000,
        "status": "success" if row.ok else "error",
        "error": row.error,
        "timestamp": to_wire(row.started_at),
        "activation_id": row.activation_id,
        "version": row.version,
        "door": row.door,
        "wait_ms": row.wait_us / 1000,
        "cold_start": row.cold,
    }
