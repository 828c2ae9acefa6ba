"""The agent of a build and its client, in one process: order, events, parts, and connections that break."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import ssl
import tarfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.runtime.builds.build_support import Log, make_request, write_files

from moorage.core.net import pod_identity
from moorage.core.net.pod_identity import PodIdentity
from moorage.runtime.builds.pods import sources, wire
from moorage.runtime.builds.pods.agent import BuildAgent, Outcome
from moorage.runtime.builds.pods.session import PodLost, Session
from moorage.runtime.builds.pods.wire import Call, Order, Part
from moorage.runtime.builds.ports import BuildFailed, Plan, Sink

pytestmark = pytest.mark.anyio

TOKEN = "token-of-the-build"


@dataclass
class Lab:
    """A started agent; the test says what its build does."""

    folder: Path
    address: str
    identity: PodIdentity
    agent: BuildAgent
    serving: asyncio.Task[None]
    go: asyncio.Event

    def session(self, token: str = TOKEN, identity: PodIdentity | None = None) -> Session:
        context = pod_identity.client_context((identity or self.identity).authority)
        return Session(self.address, token, context, _runs, reconnect_s=1.0)

    async def begin(self) -> Session:
        source = self.folder / "repository"
        if not source.exists():
            write_files(source, {"index.html": "ahoy", "pages/one.html": "one"})
            (source / "link").symlink_to("index.html")
        sources.pack(source, self.folder / "source.tar")
        session = self.session()
        await session.begin(wire.encode(Order(make_request(Path()))), self.folder / "source.tar")
        return session


async def _runs() -> None:
    pass


@contextlib.asynccontextmanager
async def started(folder: Path, work: Callable[..., object], alone_s: float = 60.0) -> AsyncIterator[Lab]:
    identity, (address, go) = wire.make_identity(), (_free_address(), asyncio.Event())
    (folder / "agent").mkdir()

    async def run(order: Order, source: Path, sink: Sink) -> Outcome:
        result = work(order, source, sink, go)
        return await result  # type: ignore[misc, no-any-return]

    agent = BuildAgent(TOKEN, run, folder / "agent", folder / "work", alone_s=alone_s)
    serving = asyncio.create_task(agent.serve(address, wire.PORT, identity.chain))
    await _listening(address)
    try:
        yield Lab(folder, address, identity, agent, serving, go)
    finally:
        serving.cancel()
        await asyncio.wait({serving})


async def _listening(address: str) -> None:
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            _, writer = await asyncio.open_connection(address, wire.PORT)
            writer.close()
            return
        await asyncio.sleep(0.01)


def _free_address() -> str:
    """Return an address of loopback for one test: the port of agents is fixed."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    return f"127.90.{port >> 8}.{port & 255}"


async def succeed(order: Order, source: Path, sink: Sink, go: asyncio.Event) -> Outcome:
    sink.write("stdout", f"{sorted(path.name for path in source.iterdir())}\n")
    sink.write("stderr", f"link to {(source / 'link').readlink()}\n")

    async def fetch(name: str) -> Path:
        return source / name

    return Outcome(Plan("static", ""), 2, [Part("index.html", 4)], fetch)


async def test_a_build_gets_its_source_and_returns_its_log_and_files(tmp_path: Path) -> None:
    log = Log()
    async with started(tmp_path, succeed) as lab:
        session = await lab.begin()
        last = await session.follow(log)
        digest = await session.fetch(last.parts[0], tmp_path / "part")

    assert log.said == [("stdout", "['index.html', 'link', 'pages']\n"), ("stderr", "link to index.html\n")]
    assert (last.plan, last.files) == (Plan("static", ""), 2)
    assert (tmp_path / "part").read_text() == "ahoy"
    assert digest == hashlib.sha256(b"ahoy").hexdigest()


async def test_a_failed_build_has_the_sentence_of_the_builder(tmp_path: Path) -> None:
    async def fail(*_: object) -> Outcome:
        raise BuildFailed("npm ci failed: there is no lock file")

    async with started(tmp_path, fail) as lab:
        session = await lab.begin()
        with pytest.raises(BuildFailed, match=r"^npm ci failed: there is no lock file$"):
            await session.follow(Log())


async def test_a_fault_of_the_agent_is_no_failure_of_the_build(tmp_path: Path) -> None:
    async def break_(*_: object) -> Outcome:
        raise KeyError("unexpected")

    async with started(tmp_path, break_) as lab:
        session = await lab.begin()
        with pytest.raises(PodLost, match=r"its agent failed .KeyError: 'unexpected'."):
            await session.follow(Log())


@pytest.mark.boundary("tenant-to-tenant", "Only the platform that started a build gives it an order and reads its log.")
async def test_another_token_gets_no_answer_and_another_pod_is_not_trusted(tmp_path: Path) -> None:
    async with started(tmp_path, succeed) as lab:
        await lab.begin()
        with pytest.raises(PodLost, match="cannot be reached"):
            await lab.session("another-token").follow(Log())
        with pytest.raises(PodLost, match="CERTIFICATE_VERIFY_FAILED"):
            await lab.session(identity=wire.make_identity()).follow(Log())


async def test_a_repeated_order_runs_once(tmp_path: Path) -> None:
    runs = []

    async def count(order: Order, source: Path, sink: Sink, go: asyncio.Event) -> Outcome:
        runs.append(order)
        return await succeed(order, source, sink, go)

    async with started(tmp_path, count) as lab:
        await lab.begin()
        session = await lab.begin()
        await session.follow(Log())

    assert len(runs) == 1


async def test_a_connection_that_breaks_loses_and_repeats_no_line(tmp_path: Path) -> None:
    async def print_lines(order: Order, source: Path, sink: Sink, go: asyncio.Event) -> Outcome:
        for number in range(200):
            sink.write("stdout", f"{number}\n")
            await asyncio.sleep(0.005)
        return await succeed(order, source, sink, go)

    log = Log()
    async with started(tmp_path, print_lines) as lab, breaking(lab.address) as (relay, breaks):
        await lab.begin()
        session = Session(relay, TOKEN, pod_identity.client_context(lab.identity.authority), _runs, reconnect_s=5.0)
        await session.follow(log)

    assert log.text("stdout").split()[:200] == [str(number) for number in range(200)]
    assert len(breaks) >= 2


@contextlib.asynccontextmanager
async def breaking(target: str) -> AsyncIterator[tuple[str, list[int]]]:
    """Forward connections at another address, and break the first two after some bytes."""
    address = _free_address()
    breaks: list[int] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(target, wire.PORT)
        copying = asyncio.create_task(_copy(reader, back))
        left = 4_000 if len(breaks) < 2 else 2**30
        while left > 0 and (chunk := await there.read(min(left, 2**16))):
            left -= len(chunk)
            writer.write(chunk)
            await writer.drain()
        breaks.append(left)
        writer.transport.abort()
        back.transport.abort()
        copying.cancel()

    server = await asyncio.start_server(forward, address, wire.PORT)
    try:
        yield address, breaks
    finally:
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(2**16):
        writer.write(chunk)


async def test_an_agent_without_its_platform_ends_and_kills_the_build(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def wait(order: Order, source: Path, sink: Sink, go: asyncio.Event) -> Outcome:
        try:
            await go.wait()
        finally:
            ended.set()
        raise AssertionError

    async with started(tmp_path, wait, alone_s=1.0) as lab:
        await lab.begin()
        async with asyncio.timeout(30):
            await lab.serving

    assert ended.is_set()


async def test_an_agent_with_its_platform_waits_for_a_silent_build(tmp_path: Path) -> None:
    async def wait(order: Order, source: Path, sink: Sink, go: asyncio.Event) -> Outcome:
        await go.wait()
        return await succeed(order, source, sink, go)

    async with started(tmp_path, wait, alone_s=1.0) as lab:
        session = await lab.begin()
        following = asyncio.create_task(session.follow(Log()))
        await asyncio.sleep(2.5)
        lab.go.set()
        last = await following

    assert last.plan is not None


async def test_a_connection_that_says_nothing_valid_is_closed(tmp_path: Path) -> None:
    async with started(tmp_path, succeed) as lab:
        for line in (b"GET / HTTP/1.1\r\n", b"{}\n", wire.encode(Call(TOKEN, "part", name="x")) + b"\n"):
            context: ssl.SSLContext = pod_identity.client_context(lab.identity.authority)
            reader, writer = await asyncio.open_connection(
                lab.address, wire.PORT, ssl=context, server_hostname=wire.HOST
            )
            writer.write(line)
            assert await reader.read() == b""
            writer.close()


def test_an_archive_with_a_name_outside_of_the_repository_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        archive.add(__file__, "../outside")

    with pytest.raises(tarfile.TarError, match="outside of the repository"):
        sources.unpack(tmp_path / "bad.tar", tmp_path / "target")
