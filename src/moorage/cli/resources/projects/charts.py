"""`moorage projects metrics` and `analytics`: figures of a project as small charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import typer

from moorage.cli.output.charts import bars, chart, short
from moorage.cli.output.tables import Column, JsonOption, show_json, show_list
from moorage.cli.output.terminal import is_terminal, note, paint, say
from moorage.cli.output.words import duration, size
from moorage.cli.session import connect
from moorage.cli.session.names import ProjectArgument
from moorage.client import models

MetricsRange = Literal["1h", "6h", "24h", "7d"]
AnalyticsRange = Literal["24h", "7d", "30d", "90d"]


def metrics(
    name: ProjectArgument,
    range_: Annotated[MetricsRange, typer.Option("--range", help="Period to show.")] = "1h",
    as_json: JsonOption = False,
) -> None:
    """Show CPU, memory, requests and latency of an app over time.

    A terminal gets charts; a pipe gets one line for each time.

    Examples: `moorage projects metrics api`, `moorage projects metrics api --range 24h --json`.
    """
    project_metrics = connect.client().projects.read_app_metrics(name, range=range_)
    if as_json:
        show_json(project_metrics)
    elif not is_terminal():
        show_list(project_metrics.items, METRICS_COLUMNS, as_json=False, empty="")
    else:
        _show_metrics(project_metrics)


METRICS_COLUMNS = [
    Column("AT", lambda row: row.at),
    Column("CPU %", lambda row: row.cpu_percent),
    Column("MEMORY MIB", lambda row: row.memory_mi_b),
    Column("REPLICAS", lambda row: row.replicas),
    Column("REQUESTS", lambda row: row.requests),
    Column("P50 MS", lambda row: row.p50_ms),
    Column("P95 MS", lambda row: row.p95_ms),
]


def _show_metrics(project_metrics: models.ProjectMetrics) -> None:
    ends = _ends([item.at for item in project_metrics.items])
    panels: list[tuple[str, str, str, Callable[[Any], float | None]]] = [
        ("CPU, percent of the tier", " %", "cyan", lambda item: item.cpu_percent),
        ("Memory", " MB", "blue", lambda item: item.memory_mi_b),
        ("Requests", "", "green", lambda item: item.requests),
        ("Latency, 95th percentile", " ms", "yellow", lambda item: item.p95_ms),
    ]
    for title, unit, style, read in panels:
        _show_panel(title, [read(item) for item in project_metrics.items], unit, style, ends)
    totals = project_metrics.totals
    percentiles = f"median {duration(totals.p50_ms) or '-'}, 95th percentile {duration(totals.p95_ms) or '-'}"
    say(f"{totals.requests} requests, {totals.failed} failed, {percentiles} in {project_metrics.range}")


def analytics(
    name: ProjectArgument,
    range_: Annotated[AnalyticsRange, typer.Option("--range", help="Period to show.")] = "7d",
    as_json: JsonOption = False,
) -> None:
    """Show visitors, requests, and the top pages and referrers of a project.

    A terminal gets charts; a pipe gets one line for each hour or day.

    Examples: `moorage projects analytics shop`, `moorage projects analytics shop --range 30d`.
    """
    project_analytics = connect.client().projects.read_analytics(name, range=range_)
    if as_json:
        show_json(project_analytics)
        return
    if not project_analytics.enabled:
        note(f"analytics are off; turn them on with `moorage projects update {name} --analytics`")
    elif not is_terminal():
        show_list(project_analytics.series, ANALYTICS_COLUMNS, as_json=False, empty="")
    else:
        _show_analytics(project_analytics)


ANALYTICS_COLUMNS = [
    Column("AT", lambda row: row.t),
    Column("REQUESTS", lambda row: row.requests),
    Column("VISITORS", lambda row: row.visitors),
    Column("BYTES", lambda row: row.bytes),
]


def _show_analytics(project_analytics: models.ProjectAnalytics) -> None:
    ends = _ends([item.t for item in project_analytics.series])
    _show_panel("Visitors", [item.visitors for item in project_analytics.series], "", "cyan", ends)
    _show_panel("Requests", [item.requests for item in project_analytics.series], "", "green", ends)
    for title, rows in (
        ("Top pages", [(row.path, row.requests) for row in project_analytics.top_paths]),
        ("Top referrers", [(row.referrer, row.requests) for row in project_analytics.top_referrers]),
    ):
        if rows:
            say(title, "bold")
            for line in bars([count for _, count in rows[:10]], [label for label, _ in rows[:10]]):
                say(line)
            say()
    totals = project_analytics.totals
    statuses = ", ".join(f"{short(count)} × {status}" for status, count in sorted(totals.statuses.items()) if count)
    say(f"{totals.visitors} visitors, {totals.requests} requests, {size(totals.bytes)} in {project_analytics.range}")
    if statuses:
        say(paint(statuses, "dim"))


def _show_panel(title: str, values: Sequence[float | None], unit: str, style: str, ends: tuple[str, str]) -> None:
    say(title, "bold")
    for line in chart(values, 5, 60, unit=unit, labels=ends, style=style):
        say(line)
    say()


def _ends(times: list[str]) -> tuple[str, str]:
    """Return short labels of the first and the last time: hours of one day, otherwise days."""
    if not times:
        return "", ""
    first, last = times[0], times[-1]
    if len(first) < 16 or first[11:16] == last[11:16] == "00:00":
        return first[:10], last[:10]
    return f"{first[:10]} {first[11:16]}" if first[:10] != last[:10] else first[11:16], last[11:16]
