"""The public status page: shown and hidden data."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from tests.products.monitors.recording_support import find, hold, record
from tests.products.monitors.support import ADA, Team, make_alert, make_beat, make_monitor, set_state

from moorage.accounts.identity.organizations import service as orgs
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, ManualClock
from moorage.products.monitors import service
from moorage.products.monitors.status_page.page import CACHE_MS, UPDATE

pytestmark = pytest.mark.anyio

EVIL = '<script>alert("x")</script>'


class Page(HTMLParser):
    """Parsed page: the bars by class, their titles, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.bars: list[str] = []
        self.titles: list[str] = []
        self.headline = ("", "")  # class and text
        self.text = ""
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open.append(tag)
        if tag == "rect":
            self.bars.append(dict(attrs)["class"] or "")
        if (dict(attrs).get("class") or "").startswith("all "):
            self.headline = (dict(attrs)["class"] or "", "")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            continue

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "title" and "rect" in self._open:
            self.titles.append(data)
        elif not {"style", "script"} & set(self._open):
            if self.headline[0] and not self.headline[1]:
                self.headline = (self.headline[0], data)
            self.text += f"{data}\n"


async def page_of(team: Team) -> Page:
    reply = await team.api.get(f"/status/{team.slug}")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    return Page(reply.body.decode())


async def test_what_is_public_is_shown_and_nothing_else(team: Team, db: Database) -> None:
    shop = await make_monitor(db, team, name="Shop", url="http://127.0.0.1:9/secret-path", is_public=True)
    await make_monitor(db, team, name="Intranet")
    await set_state(db, shop, last_status="UP", last_at=db.env.clock.now())

    page = await page_of(team)

    assert "Shop" in page.text
    assert page.headline == ("all up", "Everything is up")
    assert "Intranet" not in page.text
    assert "secret-path" not in page.text


async def test_a_page_without_public_monitors_is_like_one_of_nobody(team: Team, db: Database) -> None:
    await make_monitor(db, team)

    own = await team.api.get(f"/status/{team.slug}")
    unknown = await team.api.get("/status/nobody")

    assert own.status == unknown.status == 404
    assert own.error["message"] == unknown.error["message"]


async def test_no_page_is_left_of_an_organization_that_was_deleted(team: Team, db: Database) -> None:
    await make_monitor(db, team, is_public=True)
    await db.write(lambda tx: orgs.delete(tx, team.org_id, Actor(1, "Ada")))

    assert (await team.api.get(f"/status/{team.slug}")).status == 404


async def test_a_monitor_that_is_down_is_told_with_the_time_it_went_down(
    team: Team, db: Database, clock: ManualClock
) -> None:
    shop = await hold(db, await make_monitor(db, team, is_public=True))
    start = clock.now()
    await find(db, shop, start, "uudd")
    clock.advance(4 * MINUTE_MS)

    page = await page_of(team)

    assert page.headline == ("all bad", "1 of 1 down")
    assert "is down" in page.text
    assert "since 2026-01-01 00:02 UTC" in page.text


async def test_an_open_incident_of_a_monitor_that_is_up_is_told(team: Team, db: Database, clock: ManualClock) -> None:
    shop = await hold(db, await make_monitor(db, team, is_public=True))
    await make_alert(db, team, shop, metric="response_time", condition="gt", threshold=100.0, severity="critical")
    slow = [make_beat(shop, clock.now() + minute * MINUTE_MS, response_ms=500) for minute in range(3)]
    await record(db, *slow)

    page = await page_of(team)

    assert page.headline == ("all some", "1 open alert; everything answers")
    assert "an alert on how fast it answers (critical)" in page.text


async def test_each_of_the_last_ninety_days_has_a_bar(team: Team, db: Database, clock: ManualClock) -> None:
    shop = await hold(db, await make_monitor(db, team, is_public=True))
    start = clock.now()
    for day, ups in ((0, "uu"), (1, "uuud"), (2, "uddd")):
        await find(db, shop, start + day * DAY_MS, ups)
    clock.advance(3 * DAY_MS)
    await db.write(lambda tx: service.pause(tx, team.org_id, ADA, shop.id))
    clock.advance(DAY_MS)

    page = await page_of(team)

    assert len(page.bars) == 90
    assert page.bars[-5:] == ["up", "some", "most", "paused", "paused"]
    assert set(page.bars[:-5]) == {"none"}
    assert page.titles[-5:] == [
        "2026-01-01: 100.00 % up",
        "2026-01-02: 75.00 % up",
        "2026-01-03: 25.00 % up",
        "2026-01-04: paused",
        "2026-01-05: paused",
    ]
    assert "60.00 % in 90 days" in page.text
    assert "Nothing is checked at the moment" in page.text


async def test_names_cannot_bring_scripts_along(team: Team, db: Database) -> None:
    await make_monitor(db, team, name=EVIL, is_public=True)

    page = await page_of(team)

    assert page.tags.count("script") == 1
    assert EVIL in page.text


async def test_the_page_needs_no_script_and_loads_nothing(team: Team, db: Database) -> None:
    await make_monitor(db, team, is_public=True)

    reply = await team.api.get(f"/status/{team.slug}")

    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert reply.headers["cache-control"] == "public, max-age=15"
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert {"img", "iframe"}.isdisjoint(Page(reply.body.decode()).tags)
    assert re.findall("<script>(.*?)</script>", reply.body.decode(), re.DOTALL) == [UPDATE]
    assert re.findall("<link rel=([^ ]*)", reply.body.decode()) == ['"alternate"']


async def test_many_visitors_at_once_get_one_page_for_a_moment(team: Team, db: Database, clock: ManualClock) -> None:
    await make_monitor(db, team, name="Shop", is_public=True)
    await page_of(team)
    await make_monitor(db, team, name="Search", is_public=True)

    at_once = await page_of(team)
    clock.advance(CACHE_MS)
    later = await page_of(team)

    assert "Search" not in at_once.text
    assert "Search" in later.text


async def test_only_reading_is_answered(team: Team, db: Database) -> None:
    await make_monitor(db, team, is_public=True)

    assert (await team.api.post(f"/status/{team.slug}")).status == 404
    assert (await team.api.get(f"/status/{team.slug}/more")).status == 404
    assert (await team.api.get("/status/")).status == 404


async def test_an_outage_that_ended_stays_in_the_history_without_any_alert_rule(
    team: Team, db: Database, clock: ManualClock
) -> None:
    shop = await hold(db, await make_monitor(db, team, name="Shop", is_public=True))
    await find(db, shop, clock.now(), "uddu")
    clock.advance(2 * HOUR_MS)

    page = await page_of(team)

    assert page.headline == ("all up", "Everything is up")
    assert "Past incidents" in page.text
    assert "2 of 4 checks failed" in page.text
    assert "00:00 to 01:00 UTC, 1 h" in page.text


async def test_an_incident_of_an_alert_is_told_with_its_exact_times_instead_of_the_outage(
    team: Team, db: Database, clock: ManualClock
) -> None:
    shop = await hold(db, await make_monitor(db, team, name="Shop", is_public=True))
    await make_alert(db, team, shop, metric="status", condition="eq", threshold=0.0, duration_min=1)
    await find(db, shop, clock.now(), "uddduuuuuuuuuu")
    clock.advance(2 * HOUR_MS)

    page = await page_of(team)

    assert "checks failed" not in page.text
    assert "did not answer as expected" in page.text


async def test_a_page_without_incidents_says_so(team: Team, db: Database) -> None:
    await make_monitor(db, team, is_public=True)

    assert "No incident in the last 90 days." in (await page_of(team)).text


async def test_the_feed_has_an_entry_for_each_incident_and_keeps_its_id_when_it_ends(
    team: Team, db: Database, clock: ManualClock
) -> None:
    shop = await hold(db, await make_monitor(db, team, name=f"Shop {EVIL}", is_public=True))
    start = clock.now()
    await find(db, shop, start, "udd")
    clock.advance(3 * MINUTE_MS)
    during = await team.api.get(f"/status/{team.slug}/feed.atom")
    await find(db, shop, start + 3 * MINUTE_MS, "uu")
    clock.advance(2 * HOUR_MS)

    after = await team.api.get(f"/status/{team.slug}/feed.atom")

    assert after.headers["content-type"] == "application/atom+xml; charset=utf-8"
    (ongoing,), (resolved,) = (entries_of(each.body) for each in (during, after))
    assert ongoing == {"id": resolved["id"], "title": f"Ongoing: Shop {EVIL} 2 of 3 checks failed"}
    assert resolved["title"] == f"Resolved: Shop {EVIL} 2 of 5 checks failed"


def entries_of(feed: bytes) -> list[dict[str, str]]:
    """Return id and title of each entry."""
    atom = "{http://www.w3.org/2005/Atom}"
    entries = ElementTree.fromstring(feed).findall(f"{atom}entry")
    return [{name: each.findtext(f"{atom}{name}") or "" for name in ("id", "title")} for each in entries]
