"""Request and response models of the analytics route."""

from __future__ import annotations

from typing import Literal

from moorage.core.http.models import Output, QueryInput

RangeName = Literal["24h", "7d", "30d", "90d"]


class AnalyticsQuery(QueryInput):
    range: RangeName = "24h"


class AnalyticsTotals(Output, frozen=True):
    requests: int
    visitors: int
    bytes: int
    statuses: dict[str, int]


class AnalyticsBucket(Output, frozen=True):
    t: str
    requests: int
    visitors: int
    bytes: int


class TopPath(Output, frozen=True):
    path: str
    requests: int


class TopReferrer(Output, frozen=True):
    referrer: str
    requests: int


class ProjectAnalytics(Output, frozen=True):
    enabled: bool
    range: RangeName
    totals: AnalyticsTotals
    series: list[AnalyticsBucket]
    top_paths: list[TopPath]
    top_referrers: list[TopReferrer]
