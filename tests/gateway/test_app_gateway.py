"""Apps behind the gateway as visitors meet them: a real Caddy, and real servers behind it."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest
from structlog.testing import capture_logs
from tests.gateway.app_backend import Backend, running_backend
from tests.gateway.app_support import HOST, get, session_of, wanted
from tests.ports import free_port

from moorage.gateway.config import access_log, hosts
from moorage.gateway.config.app_proxy import waker_socket
from moorage.gateway.routes import Routes
from moorage.gateway.wanted import AppRoute, Wanted
from moorage.products.rules.patterns import HeaderRule, HostRules, RedirectRule
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

HTML = "Accept: text/html\r\n"


async def test_an_app_answers_at_its_host_whatever_is_asked(
    settings: Settings, gateway: Routes, app: Backend, is_counted: bool
) -> None:
    await gateway.apply(wanted(app.address, is_counted=is_counted))

    replies = [await get(settings, path=path) for path in ("/", "/page.html", "/x.css", "/about/", "/a//b?c=%2F")]
    posted = await get(settings, method="POST", headers="Content-Length: 0\r\n")
    odd = [await get(settings, host) for host in ("APP.localhost", "app.localhost.", f"{HOST}:81")]

    assert [reply.body for reply in (*replies, posted, *odd)] == [b"one"] * 9


async def test_what_an_app_says_goes_through_as_it_is(
    settings: Settings, gateway: Routes, app: Backend, is_counted: bool
) -> None:
    await gateway.apply(wanted(app.address, is_counted=is_counted))

    fine = await get(settings)
    refused = [await get(settings, path=f"/status/{status}", headers=HTML) for status in (404, 500, 502, 503)]

    assert (fine.headers["server"], fine.headers["cache-control"]) == ("own/1", "private")
    assert not {"via", "x-content-type-options", "x-request-id"} & set(fine.headers)
    assert [reply.status for reply in refused] == [404, 500, 502, 503]
    assert {reply.body for reply in refused} == {b"the app's own words"}


async def test_hidden_paths_are_the_apps_own_and_nothing_is_compressed_for_it(
    settings: Settings, gateway: Routes, app: Backend
) -> None:
    await gateway.apply(wanted(app.address))

    hidden = await get(settings, path="/.env")
    large = await get(settings, path="/give?mb=1", headers="Accept-Encoding: gzip\r\nRange: bytes=0-9\r\n")
    sent = json.loads((await get(settings, path="/headers", headers="Accept-Encoding: br\r\nRange: x\r\n")).body)

    assert hidden.body == b"one"
    assert (len(large.body), large.headers.get("content-encoding")) == (2**20, None)
    assert (sent["accept-encoding"], sent["range"]) == ("br", "x")


async def test_an_app_is_told_who_asks(settings: Settings, gateway: Routes, app: Backend) -> None:
    await gateway.apply(wanted(app.address))

    lied = "X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\n"
    sent = json.loads((await get(settings, path="/headers", headers=lied)).body)
    named = json.loads((await get(settings, path="/headers", headers="X-Request-Id: mine\r\n")).body)

    assert (sent["host"], sent["x-forwarded-host"]) == (HOST, HOST)
    assert (sent["x-forwarded-for"], sent["x-forwarded-proto"]) == ("127.0.0.1", "http")
    assert named["x-request-id"] == "mine"
    assert "accept-encoding" not in sent


async def test_web_sockets_go_through_and_outlive_a_load(settings: Settings, gateway: Routes, app: Backend) -> None:
    await gateway.apply(wanted(app.address))

    async with session_of(settings) as session, session.ws_connect("/echo") as socket:
        await socket.send_str("hello")
        first = await socket.receive_str()
        await gateway.apply(wanted(app.address, rules={"x.localhost": HostRules((RedirectRule("/a", "/b", 308),))}))
        await socket.send_str("again")
        second = await socket.receive_str()

    assert (first, second) == ("one: hello", "one: again")


async def test_events_arrive_as_they_are_said(settings: Settings, gateway: Routes, app: Backend) -> None:
    await gateway.apply(wanted(app.address))

    async with session_of(settings) as session, session.get("/stream") as response:
        first = await response.content.readuntil(b"\n\n")
        app.go_on.set()
        rest = await response.content.read()

    assert (first, rest) == (b"data: one\n\n", b"data: two\n\n")


async def test_large_bodies_go_both_ways(settings: Settings, gateway: Routes, app: Backend) -> None:
    await gateway.apply(wanted(app.address))
    body = b"0123456789abcdef" * 2**20

    async with session_of(settings) as session:
        async with session.post("/take", data=body) as response:
            taken = await response.json()
        async with session.get("/give?mb=32") as response:
            given = len(await response.read())

    assert taken == {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body)}
    assert given == 32 * 2**20


async def test_a_request_waits_for_an_app_that_is_being_started_again(settings: Settings, gateway: Routes) -> None:
    port = free_port()
    await gateway.apply(wanted(f"127.0.0.1:{port}"))

    async with session_of(settings) as session:
        asking = asyncio.create_task(session.post("/take", data=b"x" * 100_000))
        await asyncio.sleep(0.5)
        async with running_backend("late", port=port):
            taken = await (await asking).json()

    assert taken["size"] == 100_000


async def test_an_app_that_is_not_there_is_a_page_of_ours_or_the_envelope(
    settings: Settings, gateway: Routes, is_counted: bool
) -> None:
    await gateway.apply(wanted(f"127.0.0.1:{free_port()}", is_counted=is_counted))

    page, program = await asyncio.gather(get(settings, headers=HTML), get(settings))

    assert (page.status, program.status) == (502, 502)
    assert b"<h1>The app does not answer</h1>" in page.body
    assert program.error["message"] == "The app does not answer"
    assert program.error["traceId"] == program.headers["x-request-id"]
    assert not {"server", "via"} & {*page.headers, *program.headers}


async def test_an_app_that_breaks_off_is_not_asked_again(settings: Settings, gateway: Routes) -> None:
    asked = 0

    async def crash(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(crash, "127.0.0.1", 0)
    async with server:
        await gateway.apply(wanted(f"127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        reply = await get(settings)

    assert (reply.status, reply.error["message"], asked) == (502, "The app does not answer", 1)


async def test_the_waker_gets_the_requests_of_an_app_that_sleeps(
    settings: Settings, gateway: Routes, app: Backend
) -> None:
    async with running_backend("waker", socket=waker_socket(settings)):
        await gateway.apply(wanted(generation=1))
        asleep = await get(settings)
        await gateway.apply(wanted(app.address, generation=2))
        awake = await get(settings)

    assert (asleep.body, awake.body) == (b"waker", b"one")


@pytest.mark.parametrize("replicas", [1, 2])
async def test_rules_apply_to_apps(settings: Settings, gateway: Routes, app: Backend, replicas: int) -> None:
    headers = (HeaderRule("/*", "X-Rule", "yes"), HeaderRule("/*", "Cache-Control", "no-store"))
    rules = {HOST: HostRules((RedirectRule("/old", "/new", 301),), headers)}
    await gateway.apply(wanted(*[app.address] * replicas, rules=rules))

    page, sent_on = await get(settings), await get(settings, path="/old")

    assert (page.body, page.headers["x-rule"], page.headers["cache-control"]) == (b"one", "yes", "no-store")
    assert (sent_on.status, sent_on.headers["location"]) == (301, "/new")


async def test_requests_for_apps_are_counted_with_what_became_of_them(
    settings: Settings, gateway: Routes, app: Backend
) -> None:
    await gateway.apply(wanted(app.address))
    path = access_log.path_of(settings)
    start = path.stat().st_size if path.exists() else 0

    await get(settings)
    await get(settings, path="/status/500")

    lines = [json.loads(line) for line in path.read_bytes()[start:].splitlines()]
    found = [(line["request"]["uri"], line["status"], line["size"]) for line in lines]
    assert found == [("/", 200, 3), ("/status/500", 500, 19)]
    assert all(line["duration"] > 0 for line in lines)


@pytest.mark.parametrize("host", ["..", ".", "x/../app.localhost", "a..b", "*", "app.localhost/", "[app.localhost]"])
async def test_no_host_leads_out_of_the_folder_of_apps(
    settings: Settings, gateway: Routes, app: Backend, host: str
) -> None:
    await gateway.apply(wanted(app.address))
    stray = settings.data / f"000000000000000~{app.address}"
    stray.touch()

    reply = await get(settings, host)

    stray.unlink()
    assert reply.status in (400, 404)
    assert app.asked == 0


async def test_what_is_no_name_of_ours_in_a_hosts_folder_is_not_followed(
    settings: Settings, gateway: Routes, app: Backend
) -> None:
    await gateway.apply(wanted(app.address))
    strays = [settings.folder("apps") / HOST / name for name in (".0", "0-other")]
    for stray in strays:
        stray.touch()

    reply = await get(settings)

    for stray in strays:
        stray.unlink()
    assert reply.body == b"one"


async def test_one_app_that_cannot_be_routed_does_not_stop_the_others(
    settings: Settings, gateway: Routes, app: Backend
) -> None:
    bad = AppRoute(("nowhere", "{env.HOME}:1"), 1)

    with capture_logs() as said:
        await gateway.apply(Wanted(apps={"bad.localhost": bad, HOST: AppRoute((app.address,), 1)}))

    assert (await get(settings)).body == b"one"
    assert (await get(settings, "bad.localhost")).status == 404
    assert [line["host"] for line in said] == ["bad.localhost"]


@pytest.mark.parametrize("quick", [0, 256])
async def test_of_many_apps_each_host_reaches_its_own(
    settings: Settings, gateway: Routes, app: Backend, other: Backend, monkeypatch: pytest.MonkeyPatch, quick: int
) -> None:
    monkeypatch.setattr(hosts, "MAX_DIRECT_HOSTS", quick)  # More hosts are divided by a tree.
    names = [f"h{number}.localhost" for number in range(60)]
    apps = {name: AppRoute(((app, other)[number % 2].address,), 1) for number, name in enumerate(names)}
    rules = {name: HostRules((), (HeaderRule("/*", "X-Rule", "yes"),)) for name in names[::3]}
    await gateway.apply(Wanted(apps=apps, logged=frozenset(names), rules=rules))

    replies = [await get(settings, name) for name in names]
    odd = [await get(settings, host) for host in ("H3.localhost", "h4.localhost.", "h5.localhost:81")]

    assert [reply.body for reply in replies] == [b"one", b"two"] * 30
    assert [reply.headers.get("x-rule") for reply in replies] == ["yes", None, None] * 20
    assert [reply.body for reply in odd] == [b"two", b"one", b"two"]
