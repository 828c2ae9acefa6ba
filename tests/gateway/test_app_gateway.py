"""Apps behind the gateway as visitors meet them: a real Caddy, and real servers behind it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs
from tests.gateway.app_backend import Backend, running_backend
from tests.gateway.support import Reply, fetch, free_port, make_release, make_settings, read_reply, running_caddy

from moorage.gateway import access_log, app_routes, caddy
from moorage.gateway.app_proxy import waker_socket
from moorage.gateway.routes import Routes
from moorage.gateway.wanted import AppRoute, Wanted
from moorage.rules.patterns import HeaderRule, HostRules, RedirectRule
from moorage.settings import Settings
from moorage.telemetry import Telemetry

pytestmark = pytest.mark.anyio

HOST = "app.localhost"
HTML = "Accept: text/html\r\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A gateway in a folder with all that has a meaning to Caddy, its patterns and its regular expressions."""
    settings = make_settings(tmp_path_factory.mktemp("gw") / "d$1{t}[a]~")
    with running_caddy(settings):
        yield settings


@pytest.fixture
def settings(shared: Settings) -> Iterator[Settings]:
    yield shared
    asyncio.run(Routes(shared, Telemetry(quiet=True)).apply(Wanted()))


@pytest.fixture
def gateway(settings: Settings) -> Routes:
    return Routes(settings, Telemetry(quiet=True))


@pytest.fixture
async def app() -> AsyncIterator[Backend]:
    async with running_backend("one") as backend:
        yield backend


@pytest.fixture
async def other() -> AsyncIterator[Backend]:
    async with running_backend("two") as backend:
        yield backend


@pytest.fixture(params=["counted", "uncounted"])
def is_counted(request: pytest.FixtureRequest) -> bool:
    """Apps that are counted have a route of their own; all others are found after it turned out to be no file."""
    found: bool = request.param == "counted"
    return found


def wanted(*addresses: str, generation: int = 1, is_counted: bool = True, **fields: Any) -> Wanted:
    logged = frozenset({HOST} if is_counted else ())
    return Wanted(apps={HOST: AppRoute(addresses, generation)}, logged=logged, **fields)


async def get(
    settings: Settings, host: str = HOST, path: str = "/", headers: str = "", *, method: str = "GET"
) -> Reply:
    return await asyncio.to_thread(fetch, settings, host, path, method=method, headers=headers)


@asynccontextmanager
async def session_of(settings: Settings) -> AsyncIterator[aiohttp.ClientSession]:
    base = f"http://127.0.0.1:{settings.gateway_port}"
    async with aiohttp.ClientSession(base, headers={"Host": HOST}, timeout=aiohttp.ClientTimeout(20)) as session:
        yield session


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


@asynccontextmanager
async def busy_clients(settings: Settings, count: int) -> AsyncIterator[list[Reply]]:
    """Clients, half of which keep their connection; one that gets no whole answer fails the test."""
    replies: list[Reply] = []
    is_over = asyncio.Event()

    async def ask(keeps: bool) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", settings.gateway_port)
        while not is_over.is_set():
            writer.write(f"GET /x HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
            replies.append(read_reply(head + await reader.readexactly(length)))
            if not keeps:
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", settings.gateway_port)
        writer.close()

    tasks = [asyncio.create_task(ask(number % 2 == 0)) for number in range(count)]
    try:
        yield replies
        is_over.set()
        async with asyncio.timeout(20):
            await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def test_swaps_under_load_fail_no_request(
    settings: Settings,
    gateway: Routes,
    app: Backend,
    other: Backend,
    is_counted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app_routes, "KEPT_S", 0.5)  # so that names are taken away meanwhile, too
    await gateway.apply(wanted(app.address, is_counted=is_counted))

    async with busy_clients(settings, 8) as replies:
        for number in range(20):
            target = (other, app)[number % 2]
            await gateway.apply(wanted(target.address, generation=number + 2, is_counted=is_counted))
            asked = target.asked
            await asyncio.sleep(0.1)
            assert target.asked > asked

    assert len(replies) > 300
    assert {reply.status for reply in replies} == {200}
    assert {reply.body for reply in replies} == {b"one", b"two"}


async def test_after_a_swap_nobody_is_sent_to_the_old_replica(
    settings: Settings, gateway: Routes, app: Backend, other: Backend
) -> None:
    found = []

    for number in range(10):
        target = (app, other)[number % 2]
        await gateway.apply(wanted(target.address, generation=number + 1))
        found.append((await get(settings)).body.decode() == target.name)

    assert found == [True] * 10


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


async def test_replicas_share_the_requests_and_one_that_ends_is_left_out(
    settings: Settings, gateway: Routes, app: Backend, other: Backend
) -> None:
    await gateway.apply(wanted(app.address, other.address))

    async with busy_clients(settings, 8) as shared:
        await asyncio.sleep(0.5)
    both = (app.asked, other.asked)
    await other.stop()
    after = [await get(settings, method="POST", headers="Content-Length: 0\r\n") for _ in range(30)]

    assert {reply.status for reply in shared} == {200}
    assert min(both) > sum(both) / 4
    assert {reply.body for reply in after} == {b"one"}


async def test_replicas_come_and_go(settings: Settings, gateway: Routes, app: Backend, other: Backend) -> None:
    await gateway.apply(wanted(app.address))
    await gateway.apply(wanted(app.address, other.address, generation=2))
    scaled = {(await get(settings)).body for _ in range(30)}
    await gateway.apply(wanted(other.address, generation=3))
    alone = {(await get(settings)).body for _ in range(10)}

    assert scaled == {b"one", b"two"}
    assert alone == {b"two"}


async def test_replicas_that_are_all_gone_are_a_page_of_ours(settings: Settings, gateway: Routes) -> None:
    gone = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    await gateway.apply(wanted(*gone))

    reply = await get(settings)

    assert (reply.status, reply.error["message"]) == (502, "The app does not answer")


async def test_a_deployment_of_one_replica_loads_nothing_while_anybody_is_connected(
    settings: Settings, gateway: Routes, app: Backend, other: Backend
) -> None:
    path = settings.folder("run") / "caddy.json"
    await gateway.apply(wanted(app.address))
    before = path.stat().st_mtime_ns
    _, client = await asyncio.open_connection("127.0.0.1", settings.gateway_port)

    await gateway.apply(wanted(other.address, generation=2))
    probe = {"probe.localhost": AppRoute((app.address,), 3)}
    await gateway.apply(Wanted(apps={HOST: AppRoute((other.address,), 2), **probe}, logged=frozenset({HOST})))
    found = (await get(settings, "probe.localhost")).body
    client.close()

    assert path.stat().st_mtime_ns == before
    assert found == b"one"


async def test_who_comes_back_cuts_nobody_off_to_remember_where_apps_are(
    settings: Settings, gateway: Routes, app: Backend, other: Backend
) -> None:
    await gateway.apply(wanted(app.address))
    reader, client = await asyncio.open_connection("127.0.0.1", settings.gateway_port)
    request = f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
    client.write(request)
    first = await reader.readuntil(b"\r\n\r\none")
    await gateway.apply(wanted(other.address, generation=2))

    await Routes(settings, Telemetry(quiet=True)).apply(wanted(other.address, generation=2))
    client.write(request)
    second = await reader.readuntil(b"\r\n\r\ntwo")
    client.close()

    assert first.startswith(b"HTTP/1.1 200")
    assert second.startswith(b"HTTP/1.1 200")


async def test_where_nobody_is_connected_a_load_remembers_where_apps_are_now(
    settings: Settings, gateway: Routes, app: Backend, other: Backend
) -> None:
    async def is_remembered() -> bool:
        await gateway.apply(wanted(other.address, generation=2))
        return other.address in (settings.folder("run") / "caddy.json").read_text()

    await gateway.apply(wanted(app.address))
    async with asyncio.timeout(20):
        while not await is_remembered():  # Connections of the tests before may still be about to end.
            await asyncio.sleep(0.05)

    assert (await get(settings)).body == b"two"


async def test_an_app_is_switched_off_and_on_again(settings: Settings, gateway: Routes, app: Backend) -> None:
    rules = {HOST: HostRules((RedirectRule("/old", "/new", 308),))}
    await gateway.apply(wanted(app.address, app.address, rules=rules))

    await gateway.apply(wanted(app.address, app.address, rules=rules, disabled=frozenset({HOST})))
    off = [await get(settings, path=path) for path in ("/", "/old")]
    await gateway.apply(wanted(app.address, generation=2))
    on = await get(settings)

    assert [reply.status for reply in off] == [503, 503]
    assert on.body == b"one"


@asynccontextmanager
async def asked_all_the_time(settings: Settings, host: str) -> AsyncIterator[set[int]]:
    statuses: set[int] = set()
    is_over = asyncio.Event()

    async def probe() -> None:
        while not is_over.is_set():
            statuses.add((await get(settings, host)).status)

    prober = asyncio.create_task(probe())
    yield statuses
    is_over.set()
    await prober


async def test_a_host_that_changes_between_files_and_an_app_is_never_unknown(
    settings: Settings, gateway: Routes, app: Backend
) -> None:
    release = make_release(settings.folder("releases") / "one", {"index.html": "files"})
    seen = []
    await gateway.apply(wanted(app.address, is_counted=False))

    async with asked_all_the_time(settings, HOST) as statuses:
        for number in range(10):
            await gateway.apply(Wanted(sites={HOST: release}))
            seen.append((await get(settings)).body)
            await gateway.apply(wanted(app.address, generation=number + 2, is_counted=False))
            seen.append((await get(settings)).body)

    assert statuses == {200}
    assert seen == [b"files", b"one"] * 10


async def test_visitors_of_a_renamed_app_are_sent_on(settings: Settings, gateway: Routes, app: Backend) -> None:
    await gateway.apply(wanted(app.address))
    apps = {"new.localhost": AppRoute((app.address,), 2)}

    await gateway.apply(Wanted(apps=apps, moved={HOST: "new.localhost"}, logged=frozenset({"new.localhost"})))
    old, new = await get(settings, path="/a?b=c"), await get(settings, "new.localhost")

    assert (old.status, old.headers["location"]) == (308, "http://new.localhost/a?b=c")
    assert new.body == b"one"
    assert list((settings.folder("apps") / HOST).glob("*~*")) == []


async def test_a_counted_app_gives_way_to_files_and_comes_back(
    settings: Settings, gateway: Routes, app: Backend
) -> None:
    release = make_release(settings.folder("releases") / "one", {"index.html": "files"})
    await gateway.apply(wanted(app.address))

    await gateway.apply(Wanted(sites={HOST: release}, logged=frozenset({HOST})))
    files = await get(settings)
    await gateway.apply(wanted(app.address, generation=2))
    back = await get(settings)

    assert (files.body, back.body) == (b"files", b"one")


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


async def test_a_gateway_that_is_started_again_knows_its_apps(tmp_path: Path, app: Backend, other: Backend) -> None:
    settings = make_settings(tmp_path / "data")
    gateway = Routes(settings, Telemetry(quiet=True))
    apps = {HOST: AppRoute((app.address,), 1), "two.localhost": AppRoute((app.address, other.address), 1)}
    await gateway.apply(Wanted(apps=apps, logged=frozenset(apps)))
    before = (settings.folder("run") / "caddy.json").read_bytes()

    def started() -> list[bytes]:
        with running_caddy(settings):
            return [fetch(settings, host).body for host in (HOST, "two.localhost", "two.localhost")]

    first, second = await asyncio.to_thread(started), await asyncio.to_thread(started)

    assert caddy.write_config(settings).read_bytes() == before
    for bodies in (first, second):
        assert bodies[0] == b"one"
        assert set(bodies[1:]) <= {b"one", b"two"}
