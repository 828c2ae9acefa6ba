"""Metrics of functions over time, and the monthly usage of organizations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, to_wire
from moorage.errors import bad_field
from moorage.products.functions.records import tables as records
from moorage.products.functions.records.invocations import get_function_id
from moorage.products.functions.records.schemas import FunctionMetrics, MetricsQuery

MAX_BUCKETS = 288
_STEPS = (
    *(minutes * MINUTE_MS for minutes in (1, 5, 10, 15, 30)),
    *(hours * HOUR_MS for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_MS for days in (1, 7)),
)
_MB_MS_OF_GB_S = 1024 * 1000


class Window(NamedTuple):
    """A time range and its buckets, aligned to multiples of their width in UTC."""

    start: int
    end: int  # exclusive
    width: int

    @property
    def buckets(self) -> range:
        return range(self.start // self.width * self.width, max(self.end, self.start + 1), self.width)


def window_of(from_ms: int | None, to_ms: int | None, now: int) -> Window:
    """Return the requested window; default: 24 hours up to the current bucket."""
    if from_ms is None:
        # Aligned first, so that a day has exactly 288 buckets of 5 minutes.
        width = DAY_MS // MAX_BUCKETS
        end = ((now if to_ms is None else max(to_ms - 1, 0)) // width + 1) * width
        return Window(max(end - DAY_MS, 0), end, width)
    end = now + 1 if to_ms is None else to_ms
    if from_ms > end:
        raise bad_field("fromMs", "should not be after toMs" if to_ms is not None else "should not be in the future")
    return Window(from_ms, end, _width(from_ms, end))


def _width(start: int, end: int) -> int:
    for width in _STEPS:
        if len(Window(start, end, width).buckets) <= MAX_BUCKETS:
            return width
    # One bucket less than the maximum, because the first bucket may begin before the window.
    return -(-(end - start) // ((MAX_BUCKETS - 1) * DAY_MS)) * DAY_MS


def metrics_of(tx: Tx, org_id: int, name: str, query: MetricsQuery) -> FunctionMetrics:
    function_id = get_function_id(tx, org_id, name)
    window = window_of(query.from_ms, query.to_ms, tx.now)
    start = window.start // MINUTE_MS * MINUTE_MS
    by_start = {
        bucket.start: bucket
        for bucket in tx.all(
            records.BUCKETS, org_id=org_id, function_id=function_id, start=start, end=window.end, width=window.width
        )
    }
    response = FunctionMetrics([], [], [], [])
    for at in window.buckets:
        bucket = by_start.get(at)
        response.timestamps.append(to_wire(at))
        response.invocations.append(bucket.invocations if bucket else 0)
        response.errors.append(bucket.errors if bucket else 0)
        response.latency.append(round(bucket.duration_us / bucket.invocations / 1000, 3) if bucket else None)
    return response


def usage_of_month(tx: Tx, org_id: int) -> tuple[int, float]:
    """Return the invocations and GB-seconds of an organization in this month (UTC)."""
    today = datetime.fromtimestamp(tx.now / 1000, UTC)
    start = int(datetime(today.year, today.month, 1, tzinfo=UTC).timestamp() * 1000)
    invocations, mb_ms = tx.one(records.USED, org_id=org_id, start=start)
    return invocations, round(mb_ms / _MB_MS_OF_GB_S, 3)
