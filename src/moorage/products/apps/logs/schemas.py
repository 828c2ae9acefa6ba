"""Queries and responses of the routes of app logs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from moorage.core.http.models import Output, QueryInput, QueryInt
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, to_wire
from moorage.errors import bad_field
from moorage.runtime.engines.ports import LogLine

_UNITS = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_AGO = re.compile(r"([0-9]{1,9})([smhd])")
_MILLIS = re.compile(r"[0-9]{1,13}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BAD_MOMENT = "should be a time such as 2026-01-31T12:00:00Z, epoch milliseconds, or an age such as 15m, 2h or 7d"


def read_moment(text: str, now: int) -> int:
    """Parse a time, epoch ms or an age into epoch ms; raises ValueError."""
    if ago := _AGO.fullmatch(text):
        return now - int(ago[1]) * _UNITS[ago[2]]
    if _MILLIS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(BAD_MOMENT) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _checked(text: str) -> str:
    read_moment(text, 0)
    return text


Moment = Annotated[str, Field(max_length=40), AfterValidator(_checked)]


class AppLogsQuery(QueryInput):
    since: Moment | None = None
    until: Moment | None = None
    search: Annotated[str, Field(max_length=200)] | None = None
    limit: Annotated[QueryInt, Field(ge=1, le=1000)] = 100

    def span(self, now: int) -> tuple[int | None, int | None]:
        """Return `since` and `until` in epoch ms; raises BadRequest if reversed."""
        since = None if self.since is None else read_moment(self.since, now)
        until = None if self.until is None else read_moment(self.until, now)
        if since is not None and until is not None and since > until:
            raise bad_field("since", "should not be after until")
        return since, until


class AppLogsTailQuery(QueryInput):
    tail: Annotated[QueryInt, Field(ge=0, le=1000)] = 100


class AppLogLine(Output, frozen=True):
    timestamp: str
    stream: str
    replica: str
    message: str

    @classmethod
    def of(cls, line: LogLine) -> AppLogLine:
        return cls(to_wire(line.at), line.stream, line.replica, line.message)


class AppLogLines(Output, frozen=True):
    items: list[AppLogLine]
