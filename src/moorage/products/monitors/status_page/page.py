"""Renders the public status page as plain HTML and SVG, without scripts."""

from __future__ import annotations

import html
from functools import cache, partial
from importlib.resources import files

from moorage.core.db.store import Database
from moorage.core.http.answer import Answer
from moorage.core.http.answer import html as html_answer
from moorage.core.http.request import Request
from moorage.core.kit.clock import SECOND_MS, to_wire
from moorage.products.monitors.status_page import service
from moorage.products.monitors.status_page.service import DAYS, Day, MonitorLine, OngoingIssue, Status

PATH = "/status/"
CACHE_MS = 15 * SECOND_MS  # During an outage many visitors load the same page; it is rendered once for all.
MAX_CACHED_PAGES = 256
BAR, GAP, HEIGHT = 8, 2, 34


class StatusPage:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._cache: dict[str, tuple[int, str | None]] = {}  # by slug: time and page; oldest first

    async def handle(self, request: Request) -> Answer | None:
        """Answer a request below PATH; None without a page."""
        slug = request.path.removeprefix(PATH).removesuffix("/")
        if request.method not in ("GET", "HEAD") or not slug or "/" in slug or len(slug) > 100:
            return None
        page = await self._page(slug)
        if page is None:
            return None
        answer = html_answer(page)
        answer.headers.append((b"cache-control", b"public, max-age=15"))
        return answer

    async def _page(self, slug: str) -> str | None:
        now = self._db.env.clock.now()
        cached = self._cache.get(slug)
        if cached is not None and 0 <= now - cached[0] < CACHE_MS:
            return cached[1]
        status = await self._db.read(partial(service.find, slug=slug))
        page = render(status) if status is not None else None
        self._cache.pop(slug, None)
        self._cache[slug] = (now, page)
        while len(self._cache) > MAX_CACHED_PAGES:
            self._cache.pop(next(iter(self._cache)))
        return page


def render(status: Status) -> str:
    """Return the HTML page of an organization."""
    name = html.escape(status.organization)
    kind, headline = _headline(status)
    lines = "\n".join(_line(each) for each in status.lines)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name} status</title>
<meta name="viewport" content="width=device-width"><meta http-equiv="refresh" content="60">
<style>{_style()}</style></head><body>
<h1>{name} status</h1>
<p class="all {kind}" role="status">{headline}</p>
{_issues(status.issues)}<h2>The last {DAYS} days</h2>
<ul>
{lines}
</ul>
<footer>As of {_time(status.at)} UTC. This page looks again every minute.</footer>
</body></html>
"""


@cache
def _style() -> str:
    return (files("moorage.products.monitors.status_page") / "page.css").read_text()


def _headline(status: Status) -> tuple[str, str]:
    """Return the class and text of the headline: red only while a monitor is down."""
    checked = [line for line in status.lines if not line.is_paused and line.is_up is not None]
    down = sum(1 for line in checked if not line.is_up)
    if down:
        return "bad", "Everything is down" if down == len(checked) > 1 else f"{down} of {len(checked)} down"
    if status.issues:
        alerts = "1 open alert" if len(status.issues) == 1 else f"{len(status.issues)} open alerts"
        return "some", f"{alerts}; everything answers" if checked else alerts
    return ("up", "Everything is up") if checked else ("none", "Nothing is checked at the moment")


def _issues(issues: tuple[OngoingIssue, ...]) -> str:
    if not issues:
        return ""
    items = "\n".join(
        f'<li class="row"><span><b>{html.escape(each.name)}</b>: {html.escape(each.description)}</span>'
        f'<span class="soft">{f"since {_time(each.since)} UTC" if each.since is not None else ""}</span></li>'
        for each in issues
    )
    return f"<h2>At the moment</h2>\n<ul>\n{items}\n</ul>\n"


def _line(line: MonitorLine) -> str:
    if line.is_paused:
        kind, word = "soft", "Paused"
    elif line.is_up is None:
        kind, word = "soft", "Not checked yet"
    else:
        kind, word = ("up", "Up") if line.is_up else ("down", "Down")
    checked = f"last checked {_time(line.checked_at)} UTC" if line.checked_at is not None else "never checked"
    return f"""<li><div class="row"><b>{html.escape(line.name)}</b><span class="{kind}">{word}</span></div>
{_bars(line)}
<div class="row soft"><span>{_percent(line.uptime_all)} in {DAYS} days, {_percent(line.uptime_day)} in 24 hours</span>
<span>{checked}</span></div></li>"""


def _bars(line: MonitorLine) -> str:
    width = DAYS * (BAR + GAP) - GAP
    label = html.escape(f"{line.name}, day by day: {_percent(line.uptime_all)} up", quote=True)
    bars = "".join(_bar(index, day) for index, day in enumerate(line.days))
    return (
        f'<svg viewBox="0 0 {width} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{label}">{bars}</svg>'
    )


def _bar(index: int, day: Day) -> str:
    date = to_wire(day.start)[:10]
    if day.percent is None:
        kind, text = ("paused", "paused") if day.is_paused else ("none", "not checked")
    else:
        kind = "up" if day.down == 0 else "some" if day.up > day.down else "most"
        text = f"{_percent(day.percent)} up"
    return (
        f'<rect class="{kind}" x="{index * (BAR + GAP)}" width="{BAR}" height="{HEIGHT}">'
        f"<title>{date}: {text}</title></rect>"
    )


def _percent(value: float | None) -> str:
    return "no data" if value is None else f"{value:.2f} %"


def _time(moment_ms: int | None) -> str:
    return "" if moment_ms is None else to_wire(moment_ms)[:16].replace("T", " ")
