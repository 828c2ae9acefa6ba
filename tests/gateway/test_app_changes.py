"""What changes about an app while visitors come: its release, its replicas, its host, whether it is on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.gateway.app_backend import Backend
from tests.gateway.app_support import HOST, REQUEST, get, wanted
from tests.gateway.support import busy_clients, fetch, make_release, make_settings, running_caddy
from tests.ports import free_port

from moorage.core.telemetry import Telemetry
from moorage.gateway import app_routes, caddy, routes
from moorage.gateway.config import hosts
from moorage.gateway.routes import Routes
from moorage.gateway.wanted import AppRoute, Wanted
from moorage.products.rules.patterns import HeaderRule, HostRules, RedirectRule
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

ANSWERED_WITHIN_S = 20


async def test_swaps_under_load_fail_no_request(
    settings: Settings,
    gateway: Routes,
    app: Backend,
    other: Backend,
    is_counted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app_routes, "FORMER_NAME_KEPT_S", 0.5)  # so that former names are removed during the test
    await gateway.apply(wanted(app.address, is_counted=is_counted))

    async with busy_clients(settings, REQUEST, 8, reconnecting=4) as replies:
        for number in range(20):
            target = (other, app)[number % 2]
            await gateway.apply(wanted(target.address, generation=number + 2, is_counted=is_counted))
            asked = target.asked
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                while target.asked == asked:
                    await asyncio.sleep(0.1)

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


async def test_replicas_share_the_requests_and_one_that_ends_is_left_out(
    settings: Settings, gateway: Routes, app: Backend, other: Backend
) -> None:
    await gateway.apply(wanted(app.address, other.address))

    async with busy_clients(settings, REQUEST, 8, reconnecting=4) as shared:
        await asyncio.sleep(0.5)
    both = (app.asked, other.asked)
    await other.stop()
    await asyncio.sleep(0.3)  # A POST on a kept connection that is just being closed is lost, and sent by nobody again.
    after = [await get(settings, method="POST", headers="Content-Length: 0\r\n") for _ in range(30)]

    assert {reply.status for reply in shared} == {200}
    assert min(both) > sum(both) / 4
    assert {reply.body for reply in after} == {b"one"}


async def test_replicas_of_many_apps_share_the_requests_also_where_there_are_rules(
    settings: Settings, gateway: Routes, app: Backend, other: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "LEAF", 2)  # so that few hosts make a tree of many levels
    monkeypatch.setattr(hosts, "BRANCHES", 2)
    names = [f"h{number}.localhost" for number in range(12)]
    apps = dict.fromkeys(names, AppRoute((app.address, other.address), 1))
    rules = dict.fromkeys(names, HostRules((), (HeaderRule("/*", "X-Rule", "yes"),)))
    await gateway.apply(Wanted(apps=apps, logged=frozenset(names), rules=rules))

    replies = [[await get(settings, name) for _ in range(20)] for name in names]

    assert [{reply.body for reply in its} for its in replies] == [{b"one", b"two"}] * 12
    assert {reply.headers.get("x-rule") for its in replies for reply in its} == {"yes"}


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
    settings: Settings, gateway: Routes, app: Backend, other: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_remembered() -> bool:
        await gateway.apply(wanted(other.address, generation=2))
        return other.address in (settings.folder("run") / "caddy.json").read_text()

    monkeypatch.setattr(routes, "QUIET_BEFORE_LOAD_S", 3600)
    await gateway.apply(wanted(app.address))
    at_once = [await is_remembered() for _ in range(3)]
    monkeypatch.setattr(routes, "QUIET_BEFORE_LOAD_S", 0)
    async with asyncio.timeout(20):
        while not await is_remembered():  # Connections of the tests before may still be about to end.
            await asyncio.sleep(0.05)

    assert at_once == [False, False, False]  # Whoever has just deployed something is about to look at it.
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
