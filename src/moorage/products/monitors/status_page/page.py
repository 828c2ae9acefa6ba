"""Renders the public status page as HTML and SVG that need no script, and as a feed."""

from __future__ import annotations

import html
from functools import partial
from itertools import groupby

from moorage.core.db.store import Database
from moorage.core.http.answer import Answer
from moorage.core.http.pages import style
from moorage.core.http.request import Request
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, to_wire
from moorage.products.monitors.status_page import feed, service
from moorage.products.monitors.status_page.history import Episode
from moorage.products.monitors.status_page.service import DAYS, Day, MonitorLine, OngoingIssue, Status

PATH = "/status/"
FEED = "/feed.atom"
CACHE_MS = 15 * SECOND_MS  # During an outage many visitors load the same page; it is rendered once for all.
MAX_CACHED_PAGES = 256
MAX_PAST = 30  # incidents on the page
BAR, GAP, HEIGHT = 8, 2, 34
# Replaces the content every minute; without scripts the page stays as it was loaded. A reload of the whole page would
# take the focus and the place of people who use a screen reader.
UPDATE = """setInterval(async () => {
  if (document.hidden) return;
  const response = await fetch(location.href).catch(() => null);
  if (!response || !response.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const [current, next] = [document, page].map((each) => each.querySelector("main"));
  if (next) current.replaceChildren(...next.childNodes);
}, 60000);"""
# Symbols of a state, as in the console.
_MARKS = {
    "up": '<circle cx="6" cy="6" r="4.5" fill="currentColor"/>',
    "some": '<path d="M6 1 11.200 10.500H.800z" fill="currentColor"/>',
    "bad": '<path d="m2.500 2.500 7 7m0-7-7 7" stroke="currentColor" stroke-width="2.200" stroke-linecap="round"/>',
    "none": '<circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.6"/>',
}


class StatusPage:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._cache: dict[str, tuple[int, Answer | None]] = {}  # by path: time and answer; oldest first

    async def handle(self, request: Request) -> Answer | None:
        """Answer a request below PATH; None without a page."""
        path = request.path.removesuffix("/")
        slug = path.removeprefix(PATH).removesuffix(FEED)
        if request.method not in ("GET", "HEAD") or not slug or "/" in slug or len(slug) > 100:
            return None
        return await self._answer(path, slug)

    async def _answer(self, path: str, slug: str) -> Answer | None:
        now = self._db.env.clock.now()
        cached = self._cache.get(path)
        if cached is not None and 0 <= now - cached[0] < CACHE_MS:
            return cached[1]
        status = await self._db.read(partial(service.find, slug=slug))
        answer = _answered(status, path, slug) if status is not None else None
        self._cache.pop(path, None)
        self._cache[path] = (now, answer)
        while len(self._cache) > MAX_CACHED_PAGES:
            self._cache.pop(next(iter(self._cache)))
        return answer


def _answered(status: Status, path: str, slug: str) -> Answer:
    if path.endswith(FEED):
        answer = Answer(200, feed.render(status, PATH + slug).encode(), [(b"content-type", feed.CONTENT_TYPE)])
    else:
        sheet = style.sheet("moorage.products.monitors.status_page", "page.css")
        answer = style.answer(render(status, PATH + slug, sheet), sheet, UPDATE)
    answer.headers.append((b"cache-control", b"public, max-age=15"))
    return answer


def render(status: Status, path: str, sheet: str) -> str:
    """Return the HTML page of an organization; `path` is its address."""
    name = html.escape(status.organization)
    kind, headline = _headline(status)
    lines = "\n".join(_line(each) for each in status.lines)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name} status</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="alternate" type="application/atom+xml" title="{name} status" href="{path}{FEED}">
<style>{sheet}</style></head><body><main>
<header><h1>{name} status</h1><a class="button plain" href="{path}{FEED}">Subscribe by feed</a></header>
<p class="all {kind}">{_mark(kind)}<span role="status">{headline}</span></p>
{_issues(status.issues)}<h2>The last {DAYS} days</h2>
<ul class="card">
{lines}
</ul>
{_past(status.episodes)}
<footer>As of {_time(status.at)} UTC.</footer>
</main><script>{UPDATE}</script></body></html>
"""


def _mark(kind: str) -> str:
    return f'<svg class="mark {kind}" viewBox="0 0 12 12" aria-hidden="true">{_MARKS[kind]}</svg>'


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
        f'<li class="row"><span><b>{html.escape(each.name)}</b> {html.escape(each.description)}</span>'
        f'<span class="soft">{f"since {_time(each.since)} UTC" if each.since is not None else ""}</span></li>'
        for each in issues
    )
    return f'<h2>At the moment</h2>\n<ul class="card">\n{items}\n</ul>\n'


def _past(episodes: tuple[Episode, ...]) -> str:
    """Return the incidents that ended, by the day on which they began."""
    past = [each for each in episodes if each.ended is not None]
    head = "<h2>Past incidents</h2>\n"
    if not past:
        other = "other " if len(episodes) > len(past) else ""
        return f'{head}<p class="card days soft">No {other}incident in the last {DAYS} days.</p>'
    days = "\n".join(
        f"<section><h3>{day}</h3>{''.join(map(_episode, its))}</section>"
        for day, its in groupby(past[:MAX_PAST], key=lambda each: to_wire(each.began)[:10])
    )
    more = len(past) - MAX_PAST
    rest = f'<p class="soft">and {more} more</p>' if more > 0 else ""
    return f'{head}<div class="card days">{days}{rest}</div>'


def _episode(episode: Episode) -> str:
    assert episode.ended is not None
    lasted = episode.ended - episode.began
    end = _time(episode.ended)[11:] if lasted < DAY_MS else _time(episode.ended)
    return (
        f'<div class="row"><span><b>{html.escape(episode.name)}</b> {html.escape(episode.description)}</span>'
        f'<span class="soft">{_time(episode.began)[11:]} to {end} UTC, {_duration(lasted)}</span></div>'
    )


def _duration(span_ms: int) -> str:
    hours, minutes = span_ms // HOUR_MS, span_ms % HOUR_MS // MINUTE_MS
    if hours >= 48:
        return f"{hours // 24} days"
    parts = [f"{hours} h" if hours else "", f"{minutes} min" if minutes else ""]
    return " ".join(filter(None, parts)) or "under a minute"


def _line(line: MonitorLine) -> str:
    if line.is_paused:
        kind, word = "none", "Paused"
    elif line.is_up is None:
        kind, word = "none", "Not checked yet"
    else:
        kind, word = ("up", "Up") if line.is_up else ("bad", "Down")
    checked = f"last checked {_time(line.checked_at)} UTC" if line.checked_at is not None else "never checked"
    name = f"<b>{html.escape(line.name)}</b>"
    return f"""<li><div class="row">{name}<span class="word {kind}">{_mark(kind)}{word}</span></div>
{_bars(line)}
<div class="row soft"><span>{_percent(line.uptime_all)} in {DAYS} days, {_percent(line.uptime_day)} in 24 hours</span>
<span>{checked}</span></div></li>"""


def _bars(line: MonitorLine) -> str:
    width = DAYS * (BAR + GAP) - GAP
    label = html.escape(f"{line.name}, day by day: {_percent(line.uptime_all)} up", quote=True)
    bars = "".join(_bar(index, day) for index, day in enumerate(line.days))
    return (
        f'<svg class="bars" viewBox="0 0 {width} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}">{bars}</svg>'
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
