"""The gateway is made to serve what is wanted: links and markers on disk, configuration for the hosts that need it."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.gateway.support import NoAnswer, busy_clients, fetch, get, make_release, make_settings, running_caddy

from moorage.core.telemetry import Telemetry
from moorage.gateway import caddy, releases, routes, sites
from moorage.gateway.config import access_log, hosts, names, pages, static
from moorage.gateway.config.hosts import HostConfig
from moorage.gateway.config.rules import all_rule_routes
from moorage.gateway.routes import Routes
from moorage.gateway.sites import HostMarker
from moorage.gateway.wanted import Wanted
from moorage.products.rules.patterns import HeaderRule, HostRules, RedirectRule
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

OLD, NEW = HostRules((RedirectRule("/old", "/new", 308),)), HostRules((), (HeaderRule("/*", "X-Rule", "yes"),))


def release_of(settings: Settings, text: str, **files: str) -> Path:
    name = f"release-of-{text[:20].replace('/', '-')}"
    return make_release(settings.folder("releases") / name, {"index.html": text, **files})


def identities(settings: Settings) -> dict[str, tuple[int, int]]:
    return {
        name: ((found := os.lstat(settings.folder("sites") / name)).st_ino, found.st_ctime_ns)
        for name in os.listdir(settings.folder("sites"))
    }


async def test_sites_appear_change_and_go(settings: Settings, gateway: Routes) -> None:
    one, two = release_of(settings, "one"), release_of(settings, "two")

    await gateway.apply(Wanted(sites={"a.localhost": one, "b.localhost": one}))
    first = [(await get(settings, host)).body for host in ("a.localhost", "b.localhost")]
    await gateway.apply(Wanted(sites={"a.localhost": two}))
    second = await get(settings, "a.localhost"), await get(settings, "b.localhost")

    assert first == [b"one", b"one"]
    assert [reply.status for reply in second] == [200, 404]
    assert second[0].body == b"two"
    assert os.listdir(settings.folder("sites")) == ["a.localhost"]


async def test_of_a_thousand_hosts_only_the_one_that_changed_is_touched(settings: Settings, gateway: Routes) -> None:
    one, two = release_of(settings, "one"), release_of(settings, "two")
    wanted = Wanted(sites={f"h{number}.localhost": one for number in range(1000)})
    await gateway.apply(wanted)
    before = identities(settings)

    await gateway.apply(Wanted(sites={**wanted.sites, "h77.localhost": two}))

    after = identities(settings)
    assert len(after) == 1000
    assert [name for name in after if after[name] != before[name]] == ["h77.localhost"]
    assert (await get(settings, "h77.localhost")).body == b"two"


async def test_another_process_finds_what_is_there_and_touches_only_what_differs(settings: Settings) -> None:
    one, two = release_of(settings, "one"), release_of(settings, "two")
    hosts = ["a.localhost", "b.localhost", "c.localhost"]
    await Routes(settings, Telemetry(quiet=True)).apply(Wanted(sites=dict.fromkeys(hosts, one)))
    before = identities(settings)

    await Routes(settings, Telemetry(quiet=True)).apply(Wanted(sites={"a.localhost": one, "b.localhost": two}))

    after = identities(settings)
    assert sorted(after) == ["a.localhost", "b.localhost"]
    assert after["a.localhost"] == before["a.localhost"]
    assert (await get(settings, "b.localhost")).body == b"two"


async def test_what_others_did_to_the_links_is_put_right_at_the_next_look(
    settings: Settings, gateway: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = release_of(settings, "one"), release_of(settings, "two")
    wanted = Wanted(sites={"a.localhost": one, "b.localhost": one}, disabled=frozenset({"off.localhost"}))
    await gateway.apply(wanted)
    sites.unpublish(settings, "a.localhost")
    sites.publish(settings, "b.localhost", two)
    sites.publish(settings, "stray.localhost", two)
    sites.unmark(settings, HostMarker.DISABLED, "off.localhost")

    monkeypatch.setattr(routes, "DISK_SCAN_INTERVAL_S", 0.0)
    await gateway.apply(wanted)

    assert [(await get(settings, host)).body for host in wanted.sites] == [b"one", b"one"]
    assert (await get(settings, "stray.localhost")).status == 404
    assert (await get(settings, "off.localhost")).status == 503


async def test_a_path_too_long_for_rules_is_refused_with_a_message(settings: Settings, gateway: Routes) -> None:
    host = "long.localhost"
    await gateway.apply(Wanted(sites={host: release_of(settings, "one")}, rules={host: OLD}))

    reply = await get(settings, host, "/" + "a" * 5000)

    assert (reply.status, reply.error["message"]) == (414, "The path is too long")
    assert reply.headers["cache-control"] == "no-store"


async def test_what_is_no_link_to_a_release_is_left_alone(settings: Settings, gateway: Routes, tmp_path: Path) -> None:
    folder = settings.folder("sites")
    folder.mkdir(exist_ok=True)
    (folder / "app.localhost.sock").touch()
    (folder / "elsewhere.localhost").symlink_to(tmp_path)
    (folder / "folder.localhost").mkdir()

    await gateway.apply(Wanted(sites={"a.localhost": release_of(settings, "one")}))
    await gateway.apply(Wanted())

    assert sorted(os.listdir(folder)) == ["app.localhost.sock", "elsewhere.localhost", "folder.localhost"]
    (folder / "app.localhost.sock").unlink()
    (folder / "elsewhere.localhost").unlink()
    (folder / "folder.localhost").rmdir()


async def test_one_host_that_cannot_be_routed_does_not_stop_the_others(settings: Settings, gateway: Routes) -> None:
    one = release_of(settings, "one")
    wanted = Wanted(
        sites={"Bad_Host": one, "gone.localhost": settings.folder("releases") / "gone", "a.localhost": one},
        disabled=frozenset({"../x"}),
        logged=frozenset({"*"}),
    )

    with capture_logs() as said:
        await gateway.apply(wanted)
        await gateway.apply(wanted)

    assert (await get(settings, "a.localhost")).body == b"one"
    assert sorted(line["host"] for line in said) == ["../x", "Bad_Host", "gone.localhost"]


async def test_a_host_is_switched_off_and_on_again(settings: Settings, gateway: Routes) -> None:
    sites_wanted = {"a.localhost": release_of(settings, "one")}
    await gateway.apply(Wanted(sites=sites_wanted))

    await gateway.apply(Wanted(disabled=frozenset({"a.localhost"}), rules={"a.localhost": OLD}))
    off, ruled = await get(settings, "a.localhost"), await get(settings, "a.localhost", "/old")
    await gateway.apply(Wanted(sites=sites_wanted))
    on = await get(settings, "a.localhost")

    assert [off.status, ruled.status, on.status] == [503, 503, 200]
    assert off.headers["retry-after"] == str(pages.RETRY_AFTER_S)
    assert os.listdir(settings.folder("disabled")) == []


async def test_visitors_of_a_former_host_are_sent_on_with_path_and_query(settings: Settings, gateway: Routes) -> None:
    await gateway.apply(
        Wanted(sites={"new.localhost": release_of(settings, "one")}, moved={"old.localhost": "new.localhost"})
    )

    plain = await get(settings, "old.localhost", "/a%20b?c=%2F")
    with_port = await get(settings, "OLD.localhost:8081", "//x")

    assert (plain.status, plain.headers["location"]) == (308, "http://new.localhost/a%20b?c=%2F")
    assert (with_port.status, with_port.headers["location"]) == (308, "http://new.localhost:8081//x")
    assert plain.headers["cache-control"] == static.REVALIDATED
    assert "server" not in plain.headers


async def test_a_host_that_moves_is_never_unknown_meanwhile(settings: Settings, gateway: Routes) -> None:
    one = release_of(settings, "one")
    await gateway.apply(Wanted(sites={"old.localhost": one}))
    statuses: list[int] = []
    is_over = asyncio.Event()

    async def probe() -> None:
        while not is_over.is_set():
            # A load may close a connection of which nothing was read yet; whoever had it asks again.
            with suppress(ConnectionResetError, NoAnswer):
                statuses.append((await get(settings, "old.localhost")).status)

    prober = asyncio.create_task(probe())
    moves = 0
    async with asyncio.timeout(60):
        while moves < 10 or len(statuses) < 20:  # On a busy machine few requests fit between two moves.
            await gateway.apply(Wanted(sites={"new.localhost": one}, moved={"old.localhost": "new.localhost"}))
            await gateway.apply(Wanted(sites={"old.localhost": one}))
            moves += 1
    is_over.set()
    await prober

    assert set(statuses) <= {200, 308}


async def test_rules_apply_to_their_hosts_alone(settings: Settings, gateway: Routes) -> None:
    one = release_of(settings, "one")
    hosts = [f"h{number}.localhost" for number in range(120)]
    rules = {host: HostRules((RedirectRule("/old", f"/{host}", 307),), NEW.headers) for host in hosts[::2]}

    await gateway.apply(Wanted(sites=dict.fromkeys(hosts, one), rules=rules))

    replies = [await get(settings, host, "/old") for host in hosts]
    assert [reply.headers.get("location") for reply in replies[::2]] == [f"/{host}" for host in hosts[::2]]
    assert {reply.status for reply in replies[1::2]} == {404}
    page = await get(settings, hosts[0])
    assert (page.body, page.headers["x-rule"]) == (b"one", "yes")
    assert "server" not in replies[0].headers


async def test_rules_apply_however_many_hosts_have_some(
    settings: Settings, gateway: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "LEAF", 2)  # so that few hosts make a tree of many levels
    monkeypatch.setattr(hosts, "BRANCHES", 2)
    names = [f"h{number}.localhost" for number in range(30)]
    rules = {name: HostRules((RedirectRule("/old", f"/{name}", 307),)) for name in names}

    await gateway.apply(Wanted(rules=rules))

    replies = [await get(settings, name, "/old") for name in names]
    assert [reply.headers.get("location") for reply in replies] == [f"/{name}" for name in names]


def test_the_hosts_of_a_project_have_one_copy_of_its_rules(settings: Settings) -> None:
    names = [f"h{number}.localhost" for number in range(100)]
    rules = dict.fromkeys(names, NEW) | {f"other{number}.localhost": OLD for number in range(3)}
    config = HostConfig(rules=rules)

    written = hosts.to_text(config)
    text = json.dumps(hosts.host_routes(settings, config))
    read = hosts.from_text(written)

    assert (text.count("X-Rule"), written.count("X-Rule")) == (1, 1)
    assert read == config
    assert json.dumps(hosts.host_routes(settings, read)) == text


def test_hosts_that_an_earlier_version_wrote_are_read() -> None:
    written = """{"moved": {}, "logged": [], "rules": {"a.localhost": {
        "redirects": [["/old", "/new", 308]], "headers": [["/*", "x-rule", "yes"]]}}}"""

    read = hosts.from_text(written)

    rules = HostRules((RedirectRule("/old", "/new", 308),), (HeaderRule("/*", "x-rule", "yes"),))
    assert read == HostConfig(rules={"a.localhost": rules})


async def test_configuration_is_loaded_only_where_it_differs(settings: Settings, gateway: Routes) -> None:
    one = release_of(settings, "one")
    path = settings.folder("run") / "caddy.json"
    await gateway.apply(Wanted(sites={"a.localhost": one}, rules={"a.localhost": OLD}))
    before = path.stat().st_mtime_ns

    await gateway.apply(Wanted(sites={"a.localhost": one, "b.localhost": one}, rules={"a.localhost": OLD}))
    unchanged = path.stat().st_mtime_ns
    await gateway.apply(Wanted(sites={"a.localhost": one}, rules={"a.localhost": NEW}))

    assert before == unchanged < path.stat().st_mtime_ns
    assert (await get(settings, "a.localhost")).headers["x-rule"] == "yes"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_gateway_that_was_down_starts_with_the_newest_and_is_reached_again(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "data")
    gateway = Routes(settings, Telemetry(quiet=True))
    wanted = Wanted(sites={"a.localhost": release_of(settings, "one")}, rules={"a.localhost": NEW})

    with capture_logs() as said:
        asyncio.run(gateway.apply(wanted))
        asyncio.run(gateway.apply(wanted))
    with running_caddy(settings):
        started = fetch(settings, "a.localhost")
        asyncio.run(gateway.apply(Wanted(sites=wanted.sites, rules={"a.localhost": OLD})))
        reached = fetch(settings, "a.localhost", "/old")

    assert len([line for line in said if "does not take its configuration" in line["event"]]) == 1
    assert started.headers["x-rule"] == "yes"
    assert (reached.status, reached.headers["location"]) == (308, "/new")


@pytest.mark.parametrize("is_up", [True, False])
async def test_rules_that_caddy_refuses_are_left_out_and_the_others_applied(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_up: bool
) -> None:
    settings = settings if is_up else make_settings(tmp_path / "down")
    gateway = Routes(settings, Telemetry(quiet=True))
    real = all_rule_routes

    def with_a_flaw(rules: dict[str, HostRules]) -> list[dict[str, Any]]:
        flawed = [{"match": [{"no such matcher": 1}]}] if "bad.localhost" in rules else []
        return [*real(rules), *flawed]

    monkeypatch.setattr(hosts, "all_rule_routes", with_a_flaw)
    names = ["a.localhost", "bad.localhost", "c.localhost"]
    wanted = Wanted(sites=dict.fromkeys(names, release_of(settings, "one")), rules=dict.fromkeys(names, NEW))

    with capture_logs() as said:
        await gateway.apply(wanted)
        await gateway.apply(wanted)

    refusals = [line for line in said if line["event"] == "the gateway refuses its configuration"]
    assert [line["without_rules_of"] for line in refusals] == [["bad.localhost"]]
    written = json.loads((settings.folder("run") / caddy.LAST_HOSTS).read_text())
    assert sorted(written["rules"]) == ["a.localhost", "c.localhost"]
    if is_up:
        assert [(await get(settings, host)).headers.get("x-rule") for host in names] == ["yes", None, "yes"]


async def test_a_started_gateway_knows_the_hosts_of_the_last_time(settings: Settings, gateway: Routes) -> None:
    wanted = Wanted(
        moved={"old.localhost": "new.localhost"}, rules={"a.localhost": OLD}, logged=frozenset({"a.localhost"})
    )
    await gateway.apply(wanted)
    before = (settings.folder("run") / "caddy.json").read_bytes()

    again = caddy.write_config(settings).read_bytes()
    (settings.folder("run") / caddy.LAST_HOSTS).write_text('{"moved": 5}')
    without = caddy.write_config(settings).read_bytes()

    assert again == before
    assert without == caddy.config_text(settings, HostConfig()).encode()


@pytest.mark.parametrize("encoding", [pytest.param("identity", marks=pytest.mark.twin), "gzip"])
async def test_a_swap_under_load_never_mixes_two_releases_nor_fails_a_request(
    settings: Settings, gateway: Routes, encoding: str
) -> None:
    texts = ["a" * 30_000, "b" * 3_000]
    made = [release_of(settings, text) for text in texts]
    for release in made:
        releases.prepare(release)
    await gateway.apply(Wanted(sites={"busy.localhost": made[0]}))
    request = f"GET / HTTP/1.1\r\nHost: busy.localhost\r\nAccept-Encoding: {encoding}\r\n\r\n".encode()

    async with busy_clients(settings, request, 8) as replies:
        for number in range(400):
            await gateway.apply(Wanted(sites={"busy.localhost": made[number % 2]}))

    bodies = [gzip.decompress(reply.body) if encoding == "gzip" else reply.body for reply in replies]
    assert {reply.status for reply in replies} == {200}
    assert {body.decode() for body in bodies} == set(texts)
    for release in made:
        release.rename(release.with_name(f"used-{encoding}-{release.name}"))


async def test_whoever_asks_after_a_load_is_answered_by_the_new_configuration(
    settings: Settings, gateway: Routes
) -> None:
    found = []

    for number in range(15):
        rules = {"a.localhost": HostRules((RedirectRule("/old", f"/{number}", 308),))}
        await gateway.apply(Wanted(rules=rules))
        found.append((await get(settings, "a.localhost", "/old")).headers["location"])

    assert found == [f"/{number}" for number in range(15)]


async def test_loads_do_not_break_off_what_is_being_answered(settings: Settings, gateway: Routes) -> None:
    size = 20_000_000
    release = release_of(settings, "one")
    with (release / "large.bin").open("wb") as file:
        file.truncate(size)
    await gateway.apply(Wanted(sites={"a.localhost": release}))
    reader, writer = await asyncio.open_connection("127.0.0.1", settings.gateway_port)
    writer.write(b"GET /large.bin HTTP/1.1\r\nHost: a.localhost\r\nConnection: close\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")

    for number in range(8):
        rules = {"a.localhost": HostRules((RedirectRule("/old", f"/{number}", 308),))}
        await gateway.apply(Wanted(sites={"a.localhost": release}, rules=rules))
    received = len(await reader.read())

    writer.close()
    assert received == size
    assert (await get(settings, "a.localhost", "/old")).headers["location"] == "/7"


async def test_only_counted_hosts_are_logged_and_nothing_secret_is(settings: Settings, gateway: Routes) -> None:
    one = release_of(settings, "one")
    await gateway.apply(
        Wanted(
            sites={"a.localhost": one, "b.localhost": one},
            logged=frozenset({"a.localhost"}),
            rules={"a.localhost": OLD},
        )
    )
    headers = (
        "Referer: https://from.example/page?token=secret#secret\r\nUser-Agent: Browser/1\r\n"
        "Cookie: session=secret\r\nAuthorization: Bearer secret\r\nX-Custom: secret\r\n"
    )

    for target in ("/?q=secret", "/nothing", "/old"):
        await get(settings, "a.localhost", target, headers)
    await get(settings, "b.localhost", "/", headers)
    await get(settings, "a.localhost", "/bare")

    path = access_log.path_of(settings)
    text = path.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert "secret" not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [(line["request"]["uri"], line["status"]) for line in lines] == [
        ("/", 200),
        ("/nothing", 404),
        ("/old", 308),
        ("/bare", 404),
    ]
    assert {line["request"]["host"] for line in lines} == {"a.localhost"}
    assert (lines[0]["referer"], lines[0]["user_agent"]) == ("https://from.example/page", "Browser/1")
    assert (lines[0]["size"], lines[0]["request"]["client_ip"]) == (3, "127.0.0.1")
    assert (lines[3]["referer"], lines[3]["user_agent"]) == ("", "")
    known = {"ts", "request", "bytes_read", "duration", "size", "status", "referer", "user_agent"}
    assert set(lines[0]) == known
    assert set(lines[0]["request"]) == {"remote_ip", "client_ip", "proto", "method", "host", "uri"}


@pytest.mark.parametrize("count", [pytest.param(names.FEW, marks=pytest.mark.twin), names.FEW + 12])
async def test_of_many_hosts_those_that_are_counted_are_logged_however_they_are_written(
    settings: Settings, gateway: Routes, count: int
) -> None:
    counted = [f"h{number}.localhost" for number in range(count)]
    one = release_of(settings, "one")
    path = access_log.path_of(settings)
    await gateway.apply(Wanted(sites=dict.fromkeys([*counted, "b.localhost"], one), logged=frozenset(counted)))
    start = path.stat().st_size if path.exists() else 0

    asked = ["h1.localhost", "H1.localhost", "h1.localhost:81", "b.localhost", "gone.localhost", "#50"]
    statuses = [(await get(settings, host)).status for host in asked]

    lines = [json.loads(line) for line in path.read_bytes()[start:].splitlines()]
    assert statuses == [200, 200, 200, 200, 404, 400]
    assert [line["request"]["host"] for line in lines] == asked[:3]
