"""The public status page: plain HTML and SVG, made on the server, with nothing to load and no script."""

from __future__ import annotations

from functools import cache, partial
from html import escape
from importlib.resources import files

from moorage.core.db.store import Database
from moorage.core.http.answer import Answer, html
from moorage.core.http.request import Request
from moorage.core.kit.clock import SECOND_MS, to_wire
from moorage.products.monitors.status_page import service as status
from moorage.products.monitors.status_page.service import DAYS, Day, Line, Status, Trouble

PATH = "/status/"
KEPT_MS = 15 * SECOND_MS  # A page that many read at once, just when something is down, is made once for all of them.
KEPT_PAGES = 256
BAR, GAP, HEIGHT = 8, 2, 34


class StatusPage:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._made: dict[str, tuple[int, str | None]] = {}  # by slug: when, and the page; oldest first

    async def handle(self, request: Request) -> Answer | None:
        """Answer a request below the path; None where there is no page."""
        slug = request.path.removeprefix(PATH).removesuffix("/")
        if request.method not in ("GET", "HEAD") or not slug or "/" in slug or len(slug) > 100:
            return None
        page = await self._page(slug)
        if page is None:
            return None
        answer = html(page)
        answer.headers.append((b"cache-control", b"public, max-age=15"))
        return answer

    async def _page(self, slug: str) -> str | None:
        now = self._db.env.clock.now()
        found = self._made.get(slug)
        if found is not None and 0 <= now - found[0] < KEPT_MS:
            return found[1]
        told = await self._db.read(partial(status.find, slug=slug))
        page = render(told) if told is not None else None
        self._made.pop(slug, None)
        self._made[slug] = (now, page)
        while len(self._made) > KEPT_PAGES:
            self._made.pop(next(iter(self._made)))
        return page


def render(told: Status) -> str:
    """Return the page of an organization."""
    name = escape(told.organization)
    kind, headline = _headline(told)
    lines = "\n".join(_line(each) for each in told.lines)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name} status</title>
<meta name="viewport" content="width=device-width"><meta http-equiv="refresh" content="60">
<style>{_style()}</style></head><body>
<h1>{name} status</h1>
<p class="all {kind}" role="status">{headline}</p>
{_troubles(told.troubles)}<h2>The last {DAYS} days</h2>
<ul>
{lines}
</ul>
<footer>As of {_time(told.at)} UTC. This page looks again every minute.</footer>
</body></html>
"""


@cache
def _style() -> str:
    return (files("moorage.products.monitors.status_page") / "page.css").read_text()


def _headline(told: Status) -> tuple[str, str]:
    checked = [line for line in told.lines if not line.is_paused and line.is_up is not None]
    down = sum(1 for line in checked if not line.is_up)
    if down:
        return "bad", "Everything is down" if down == len(checked) > 1 else f"{down} of {len(checked)} down"
    if told.troubles:
        return "bad", "Everything is up, with alerts"
    return ("up", "Everything is up") if checked else ("none", "Nothing is checked at the moment")


def _troubles(troubles: tuple[Trouble, ...]) -> str:
    if not troubles:
        return ""
    items = "\n".join(
        f'<li class="row"><span><b>{escape(each.name)}</b>: {escape(each.what)}</span>'
        f'<span class="soft">{f"since {_time(each.since)} UTC" if each.since is not None else ""}</span></li>'
        for each in troubles
    )
    return f"<h2>At the moment</h2>\n<ul>\n{items}\n</ul>\n"


def _line(line: Line) -> str:
    if line.is_paused:
        kind, word = "soft", "Paused"
    elif line.is_up is None:
        kind, word = "soft", "Not checked yet"
    else:
        kind, word = ("up", "Up") if line.is_up else ("down", "Down")
    checked = f"last checked {_time(line.checked_at)} UTC" if line.checked_at is not None else "never checked"
    return f"""<li><div class="row"><b>{escape(line.name)}</b><span class="{kind}">{word}</span></div>
{_bars(line)}
<div class="row soft"><span>{_percent(line.uptime_all)} in {DAYS} days, {_percent(line.uptime_day)} in 24 hours</span>
<span>{checked}</span></div></li>"""


def _bars(line: Line) -> str:
    width = DAYS * (BAR + GAP) - GAP
    label = escape(f"{line.name}, day by day: {_percent(line.uptime_all)} up", quote=True)
    bars = "".join(_bar(place, day) for place, day in enumerate(line.days))
    return (
        f'<svg viewBox="0 0 {width} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{label}">{bars}</svg>'
    )


def _bar(place: int, day: Day) -> str:
    date = to_wire(day.start)[:10]
    if day.percent is None:
        kind, what = ("paused", "paused") if day.is_paused else ("none", "not checked")
    else:
        kind = "up" if day.down == 0 else "some" if day.up > day.down else "most"
        what = f"{_percent(day.percent)} up"
    return (
        f'<rect class="{kind}" x="{place * (BAR + GAP)}" width="{BAR}" height="{HEIGHT}">'
        f"<title>{date}: {what}</title></rect>"
    )


def _percent(value: float | None) -> str:
    return "no data" if value is None else f"{value:.2f} %"


def _time(moment_ms: int | None) -> str:
    return "" if moment_ms is None else to_wire(moment_ms)[:16].replace("T", " ")
