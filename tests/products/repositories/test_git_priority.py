"""Git runs at low priority, in its own cgroup, and within the limit of an organization."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.products.repositories.support import Checkout, Harbor, basic, wait_for

from moorage.core import disk
from moorage.errors import QuotaExceeded, RateLimited
from moorage.products.repositories import priority
from moorage.products.repositories.git import Git, stop
from moorage.products.repositories.priority import GROUPS, MAX_MEMORY_MB, NICE, WEIGHT
from moorage.products.repositories.server import bodies
from moorage.products.repositories.server.transfer_slots import MAX_CONCURRENT_TRANSFERS, TransferSlots
from moorage.runtime.sandbox.cgroups.none import NoCgroups
from moorage.runtime.sandbox.runs import cgroups as run_groups

pytestmark = pytest.mark.anyio
PRIORITY = pytest.mark.boundary(
    "tenant-to-tenant", "Git transfers run at low priority within bounds of CPU weight and memory."
)
BOUND = pytest.mark.boundary("tenant-to-tenant", "One organization has a bounded number of git transfers at once.")


@pytest.fixture
def git(tmp_path: Path) -> Git:
    (tmp_path / "empty").mkdir()
    return Git(tmp_path / "empty", 2**30)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    work = Checkout.init(tmp_path / "work")
    work.commit("one", index_html="<h1>one</h1>")
    work.git("clone", "--quiet", "--bare", ".", str(tmp_path / "site.git"))
    return tmp_path / "site.git"


@contextlib.asynccontextmanager
async def waiting_git(git: Git, *words: str, cwd: Path) -> AsyncIterator[int]:
    """Start a git that waits for its standard input, and yield its process id."""
    reading, writing = os.pipe()
    process = await git.start(*words, cwd=cwd, stdin=reading)
    os.close(reading)
    try:
        yield process.pid
    finally:
        os.close(writing)
        await stop(process)


def groups_of(pid: int) -> list[str]:
    """Return the cgroups of a process that were made for it."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return [path for line in lines if f"run-{os.getpid()}-{pid}" in (path := line.split(":", 2)[2])]


@PRIORITY
@pytest.mark.parametrize("command", ["upload-pack", "receive-pack"])
async def test_a_transfer_is_nice_and_has_a_cgroup_where_there_are_cgroups(
    git: Git, repository: Path, command: str
) -> None:
    has_cgroups = run_groups.find().kind != "none"

    async with waiting_git(git, command, "--stateless-rpc", str(repository), cwd=repository) as pid:
        nice, groups = os.getpriority(os.PRIO_PROCESS, pid), groups_of(pid)

    assert nice == os.getpriority(os.PRIO_PROCESS, 0) + NICE or nice == NICE
    assert bool(groups) is has_cgroups


@PRIORITY
async def test_the_cgroup_of_a_transfer_bounds_it_and_goes_with_it(git: Git, repository: Path) -> None:
    found = run_groups.find()
    memory = {"v1": "memory/{}/memory.limit_in_bytes", "v2": "{}/memory.max"}
    weight = {"v1": "cpu/{}/cpu.shares", "v2": "{}/cpu.weight"}

    async with waiting_git(git, "upload-pack", "--stateless-rpc", str(repository), cwd=repository) as pid:
        limits = {name: _limit(found.kind, pid, each) for name, each in (("memory", memory), ("cpu", weight))}

    expected = {
        "memory": str(MAX_MEMORY_MB * 2**20),
        "cpu": str(WEIGHT * 1024 // 100 if found.kind == "v1" else WEIGHT),
    }
    assert limits == {name: expected[name] if name in found.controllers else None for name in limits}
    wait_for(lambda: _is_gone(pid))


def _limit(kind: str, pid: int, files: dict[str, str]) -> str | None:
    if kind not in files:
        return None
    pattern, name = files[kind].split("{}")
    found = [path for path in _left(pid) if str(path).startswith(f"/sys/fs/cgroup/{pattern}")]
    return (found[0] / name.lstrip("/")).read_text().strip() if found else None


def _is_gone(pid: int) -> bool:
    GROUPS.leave(pid)  # What could not be removed at once is tried again with each call.
    return not _left(pid)


def _left(pid: int) -> list[Path]:
    """Return the folders of a process's cgroup; those of other processes come and go meanwhile."""
    walk = os.walk("/sys/fs/cgroup")
    return [Path(at, name) for at, names, _ in walk for name in names if name.endswith(f"run-{os.getpid()}-{pid}")]


@PRIORITY
async def test_a_transfer_leaves_one_cpu_free_where_there_are_no_cgroups(
    git: Git, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.sched_getaffinity(0)
    monkeypatch.setattr(priority, "GROUPS", priority.GitGroups())
    monkeypatch.setattr(run_groups, "find", NoCgroups)

    async with waiting_git(git, "upload-pack", "--stateless-rpc", str(repository), cwd=repository) as pid:
        cpus = os.sched_getaffinity(pid)

    assert cpus == (own - {min(own)} or own)


@PRIORITY
async def test_commands_that_only_ask_are_nice_too(git: Git, repository: Path) -> None:
    async with waiting_git(git, "cat-file", "--batch", cwd=repository) as pid:
        nice, groups = os.getpriority(os.PRIO_PROCESS, pid), groups_of(pid)

    assert (nice >= NICE, groups) == (True, [])


@BOUND
def test_an_organization_with_all_transfers_is_refused_before_a_body_is_read() -> None:
    slots = TransferSlots()

    with contextlib.ExitStack() as stack:
        for _ in range(MAX_CONCURRENT_TRANSFERS):
            stack.enter_context(slots.take(1))
        with pytest.raises(RateLimited), slots.take(1):
            pass
        with slots.take(2):
            pass
    with slots.take(1):
        pass


@BOUND
async def test_a_build_waits_for_the_transfers_of_its_organization_and_of_no_other() -> None:
    slots, began = TransferSlots(limit=1), []

    async def fetch(org_id: int, name: str, until: asyncio.Event) -> None:
        async with slots.wait(org_id):
            began.append(name)
            await until.wait()

    done = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for org_id, name in ((1, "first"), (1, "second"), (2, "other")):
            group.create_task(fetch(org_id, name, done))
        while len(began) < 2:
            await asyncio.sleep(0)
        before = list(began)
        done.set()

    assert before == ["first", "other"]
    assert sorted(began) == ["first", "other", "second"]


@BOUND
async def test_a_build_that_is_cancelled_while_it_waits_leaves_its_place_to_others() -> None:
    slots = TransferSlots(limit=1)

    async def fetch() -> str:
        async with slots.wait(1):
            return "fetched"

    with slots.take(1):
        gone, stays = asyncio.create_task(fetch()), asyncio.create_task(fetch())
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
    async with slots.wait(1):
        pass

    assert await asyncio.wait_for(stays, 10) == "fetched"


class Body:
    """A request with an endless body."""

    consumed = False

    def header(self, _name: bytes) -> None:
        return None

    async def chunks(self, _most: int) -> AsyncIterator[bytes]:
        while True:
            yield bytes(2**20)


@BOUND
async def test_a_body_is_given_up_when_the_disk_s_reserve_is_reached_meanwhile() -> None:
    room = iter([True, True, False])

    def check_room() -> None:
        if not next(room):
            raise QuotaExceeded("full")

    with tempfile.TemporaryFile() as file:
        with pytest.raises(QuotaExceeded):
            await bodies.store(Body(), file, 2**30, check_room)  # type: ignore[arg-type]

        assert file.tell() < 3 * disk.CHECK_INTERVAL_BYTES


class PackedBody:
    """A request with a gzip body that arrives in one chunk."""

    consumed = False

    def __init__(self, content: bytes) -> None:
        self.body = gzip.compress(content)

    def header(self, _name: bytes) -> str:
        return "gzip"

    async def chunks(self, _most: int) -> AsyncIterator[bytes]:
        yield self.body


@BOUND
async def test_other_tasks_run_while_a_compressed_chunk_is_unpacked() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    with tempfile.TemporaryFile() as file:
        fits = await bodies.store(PackedBody(bytes(4 * 2**20)), file, 2**30, lambda: None)  # type: ignore[arg-type]
    counting.cancel()

    assert fits
    assert turns >= 4 * 2**20 // bodies.DECOMPRESS_STEP_BYTES


@BOUND
def test_unfinished_requests_of_one_organization_are_bounded(harbor: Harbor, work: Checkout) -> None:
    work.git("push", harbor.url("quay/held.git"), "main")
    headers = {**basic(harbor.token), "Content-Type": "application/x-git-upload-pack-request", "Content-Length": "1000"}

    def ask() -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", harbor.server.port, timeout=20)
        connection.putrequest("POST", "/git/quay/held.git/git-upload-pack")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(b"0032want ")
        return connection

    with contextlib.ExitStack() as stack:
        for number in range(MAX_CONCURRENT_TRANSFERS):
            stack.callback(ask().close)
            wait_for(lambda number=number: _held(harbor) > number)  # type: ignore[misc]
        refused = ask()
        status = refused.getresponse().status
        refused.close()

    wait_for(lambda: _held(harbor) == 0)
    assert status == 429


def _held(harbor: Harbor) -> int:
    """Return how many bodies the server keeps in files without a name."""
    folder = str(harbor.db.env.settings.folder("git") / "incoming")
    links = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(link.startswith(folder) for link in links)
