"""Volumes of one machine are copied into claims: the transfer itself, and the engine around it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port
from tests.relays import Relay
from tests.runtime.engines.contract.conftest import LOG, KubernetesSite, Lab
from tests.runtime.engines.kubernetes.api_server import LabCluster
from tests.runtime.engines.kubernetes.containers import PLATFORM

from moorage.core.net import pod_identity
from moorage.runtime.engines.kubernetes import engine as kubernetes_engine
from moorage.runtime.engines.kubernetes import options as kubernetes_options
from moorage.runtime.engines.kubernetes.client import Cluster
from moorage.runtime.engines.kubernetes.engine import MachineFolders
from moorage.runtime.engines.kubernetes.filling import receiving, wire
from moorage.runtime.engines.kubernetes.filling.sending import CannotFill, Sent, Transfer
from moorage.runtime.engines.local_volumes import LocalVolumes
from moorage.runtime.engines.ports import AppSpec, CannotStart, Engine
from moorage.runtime.logs.local import LocalLogs

pytestmark = pytest.mark.anyio

TOKEN = "a-token"
MB = 2**20
IMAGE = "registry.example/platform:1"


# The transfer.


@dataclass
class Pod:
    """The agent in a thread, behind a relay that can cut its connections."""

    volume: Path
    alone_s: float = 60.0
    port: int = field(default_factory=free_port)
    ended: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.identity = pod_identity.make(wire.HOST, "tests")
        self.relay = Relay(self.port)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        done = receiving.serve(TOKEN, self.identity.chain, self.volume, "127.0.0.1", self.port, alone_s=self.alone_s)
        self.ended.append(done)

    def transfer(self, token: str = TOKEN) -> Transfer:
        return Transfer("127.0.0.1", token, self.identity.authority, self.relay.port)

    async def receive(self, source: Path) -> Sent:
        return await self.transfer().run(source)

    def close(self) -> None:
        self.relay.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    folder.mkdir()
    return folder


@pytest.fixture
def make_pod(volume: Path) -> Iterator[Callable[..., Pod]]:
    pods = []

    def make(**changed: Any) -> Pod:
        pods.append(Pod(volume, **changed))
        return pods[-1]

    yield make
    for pod in pods:
        pod.close()


def write_tree(folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "empty").mkdir(mode=0o500)
    (folder / "a" / "b" / "note").write_text("deep")
    (folder / "a" / "nothing").touch()
    (folder / "script").write_bytes(b"#!/bin/sh\n")
    (folder / "script").chmod(0o750)
    (folder / "secret").write_text("for the owner")
    (folder / "secret").chmod(0o400)
    with open(os.path.join(os.fsencode(folder), b"caf\xe9"), "wb") as file:
        file.write(os.urandom(3 * MB + 17))
    os.symlink("script", folder / "link")
    os.symlink("/etc", folder / "outside")
    os.mkfifo(folder / "pipe")
    for path in (folder / "a" / "b" / "note", folder / "script", folder / "empty"):
        os.utime(path, ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))


def describe(folder: Path) -> dict[bytes, tuple[Any, ...]]:
    """Return all entries below a folder with type, mode, time and content."""
    found: dict[bytes, tuple[Any, ...]] = {}
    for place, folders, files in os.walk(os.fsencode(folder)):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            status = os.lstat(path)
            inside = os.path.relpath(path, os.fsencode(folder))
            if os.path.islink(path):
                found[inside] = ("link", os.readlink(path))
            elif os.path.isdir(path):
                found[inside] = ("folder", status.st_mode, status.st_mtime_ns)
            elif os.path.isfile(path):
                found[inside] = ("file", status.st_mode, status.st_mtime_ns, Path(os.fsdecode(path)).read_bytes())
    return found


async def test_a_volume_has_all_files_with_modes_times_and_links(
    source: Path, volume: Path, make_pod: Callable[..., Pod]
) -> None:
    write_tree(source)
    before = describe(source)

    sent = await make_pod().receive(source)

    assert describe(volume) == before
    assert describe(source) == before
    assert (sent.files, sent.left_out) == (5, 1)  # The pipe is left out.


async def test_a_file_with_holes_takes_no_more_room(source: Path, volume: Path, make_pod: Callable[..., Pod]) -> None:
    with (source / "sparse").open("wb") as file:
        file.truncate(4096 * MB)
        file.seek(2048 * MB)
        file.write(b"in the middle")

    sent = await make_pod().receive(source)

    status = (volume / "sparse").stat()
    assert (status.st_size, status.st_blocks * 512 < 4 * MB, sent.copied_bytes < 4 * MB) == (4096 * MB, True, True)
    with (volume / "sparse").open("rb") as file:
        file.seek(2048 * MB)
        assert file.read(13) == b"in the middle"


async def test_many_files_of_one_folder(source: Path, volume: Path, make_pod: Callable[..., Pod]) -> None:
    for number in range(5000):
        (source / f"file-{number}").write_text(str(number))

    await make_pod().receive(source)

    assert describe(volume) == describe(source)


async def test_a_broken_transfer_continues_with_what_is_missing(
    source: Path, volume: Path, make_pod: Callable[..., Pod]
) -> None:
    for number in range(20):
        (source / f"part-{number}").write_bytes(os.urandom(MB))
    pod = make_pod()
    pod.relay.delay_s = 0.01
    first = asyncio.create_task(pod.receive(source))
    while len(list(volume.glob("part-*"))) < 8:
        await asyncio.sleep(0.01)
    pod.relay.cut()
    with pytest.raises(CannotFill):
        await first
    pod.relay.delay_s = 0.0

    sent = await pod.receive(source)

    assert describe(volume) == describe(source)
    assert 0 < sent.copied_bytes < 20 * MB
    pod.thread.join()
    assert pod.ended == [True]


async def test_files_of_another_boot_are_sent_again(
    source: Path, volume: Path, make_pod: Callable[..., Pod], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (source / "note").write_text("whole")
    (volume / "note").write_bytes(b"\0" * 5)  # The node was lost before the content was on its disk.
    status = (source / "note").stat()
    os.utime(volume / "note", ns=(status.st_mtime_ns, status.st_mtime_ns))
    (volume / os.fsdecode(receiving.MARKER)).write_text("another boot")

    await make_pod().receive(source)

    assert describe(volume) == describe(source)


async def test_entries_that_the_source_has_no_more_are_removed(
    source: Path, volume: Path, make_pod: Callable[..., Pod]
) -> None:
    (source / "kept").mkdir()
    (source / "kept" / "note").write_text("new")
    (volume / "kept" / "gone").mkdir(parents=True)
    (volume / "kept" / "gone" / "file").touch()
    (volume / "kept" / "note").mkdir()  # a folder by then
    (volume / "lost+found").mkdir()

    await make_pod().receive(source)

    assert (volume / "lost+found").is_dir()
    (volume / "lost+found").rmdir()
    assert describe(volume) == describe(source)


async def test_a_link_in_the_volume_is_not_followed(
    source: Path, volume: Path, make_pod: Callable[..., Pod], tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    os.symlink(tmp_path / "other", volume / "folder")
    (source / "folder").mkdir()
    (source / "folder" / "note").write_text("inside")

    await make_pod().receive(source)

    assert list((tmp_path / "other").iterdir()) == []
    assert describe(volume) == describe(source)


async def test_folders_that_are_too_deep_are_left_out(source: Path, volume: Path, make_pod: Callable[..., Pod]) -> None:
    deep = source
    for _ in range(210):
        deep = deep / "d"
        deep.mkdir()

    sent = await make_pod().receive(source)

    assert sent.left_out == 1
    assert len(describe(volume)) == 200


SERVE = """
import sys
from pathlib import Path
from moorage.runtime.engines.kubernetes.filling import receiving
receiving.serve(sys.argv[1], sys.stdin.read(), Path(sys.argv[2]), "127.0.0.1", int(sys.argv[3]), alone_s=60.0)
"""


async def test_a_volume_that_is_too_small_says_so(source: Path, volume: Path) -> None:
    (source / "large").write_bytes(os.urandom(4 * MB))
    identity, port = pod_identity.make(wire.HOST, "tests"), free_port()
    mount = 'mount -t tmpfs -o size=2m tmpfs "$3" && exec "$0" -c "$1" "$2" "$3" "$4"'
    agent = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "--map-root-user", "sh", "-c", mount),
        *(sys.executable, SERVE, TOKEN, str(volume), str(port)),
        stdin=asyncio.subprocess.PIPE,
    )
    assert agent.stdin
    agent.stdin.write(identity.chain.encode())
    agent.stdin.close()
    try:
        with pytest.raises(CannotFill, match="the volume is too small for its files"):
            await Transfer("127.0.0.1", TOKEN, identity.authority, port).run(source)
    finally:
        agent.kill()
        await agent.wait()


async def test_another_token_gets_nothing(source: Path, volume: Path, make_pod: Callable[..., Pod]) -> None:
    (source / "note").write_text("kept")
    pod = make_pod()

    with pytest.raises(CannotFill):
        await pod.transfer("another").run(source)

    assert list(volume.iterdir()) == []


async def test_an_agent_without_its_platform_ends(make_pod: Callable[..., Pod]) -> None:
    pod = make_pod(alone_s=0.2)

    await asyncio.to_thread(pod.thread.join, 30)

    assert pod.ended == [False]


# The engine.


class MovedSite(KubernetesSite):
    """A cluster whose platform had volumes on one machine before."""

    fill_image = IMAGE

    def __init__(self) -> None:
        super().__init__()
        self.folders = self._home / "volumes"
        self.folders.mkdir()
        self.cluster.kubelet.images[IMAGE] = PLATFORM

    def connect(self) -> Engine:
        options = kubernetes_options.Options(drain_s=0, patience_s=2.0, fill_image=self.fill_image)
        client = Cluster.connect(str(self.cluster.kubeconfig), patience_s=10.0)
        machine = MachineFolders(LocalVolumes(self.folders, self._home / "trash"), self.folders)
        logs = LocalLogs(self._home / "logs")
        return kubernetes_engine.make_engine(client, options, logs, self._open_log, machine)

    def write(self, volume: str, **files: str) -> None:
        (self.folders / volume).mkdir(exist_ok=True)
        for name, text in files.items():
            (self.folders / volume / name).write_text(text)


@pytest.fixture
def site() -> Iterator[MovedSite]:
    made = MovedSite()
    yield made
    made.close()


@pytest.fixture
def cluster(site: MovedSite) -> LabCluster:
    return site.cluster


@pytest.fixture
async def lab(site: MovedSite) -> AsyncIterator[Lab]:
    made = Lab(site)
    yield made
    for key in list(made.engine.workloads.states()):
        await made.engine.workloads.stop(key, 0.0)
    await made.engine.workloads.close()


def app(lab: Lab, key: str = "r1") -> AppSpec:
    spec = lab.app(key, volume="17", disk_mb=64)
    return replace(spec, files=replace(spec.files, user="1234"))  # type: ignore[type-var]


async def ensure(lab: Lab) -> None:
    await lab.engine.volumes.ensure("17", uid=0, size_mb=64)


def fill_of(cluster: LabCluster) -> str:
    (claim,) = cluster.objects("PersistentVolumeClaim", "moorage.dev/volume=17,!moorage.dev/trash")
    return str(claim["metadata"]["labels"].get("moorage.dev/fill", ""))


def folder_of(site: MovedSite) -> Path:
    (claim,) = site.cluster.objects("PersistentVolumeClaim", "moorage.dev/volume=17,!moorage.dev/trash")
    return site.cluster.kubelet.volumes / "moorage-org-0" / str(claim["metadata"]["name"])


async def test_the_first_pod_of_an_app_finds_the_files_of_its_machine(lab: Lab, site: MovedSite) -> None:
    site.write("17", note="kept")
    await ensure(lab)
    before = fill_of(site.cluster)

    await lab.start(app(lab))

    assert await lab.get("r1", "read", "note") == "kept"
    assert (before, fill_of(site.cluster)) == ("pending", "done")
    assert (folder_of(site) / "note").stat().st_uid == 1234  # the user of the image
    assert (site.folders / "17" / "note").read_text() == "kept"
    assert [pod["metadata"]["name"] for pod in site.cluster.objects("Pod")] != ["fill-17"]
    (said,) = [line for line in await lab.lines(LOG, "system") if "copied" in line]
    assert said.startswith("copied the files of its volume to the cluster: 1 files")


async def test_a_volume_is_filled_once(lab: Lab, site: MovedSite) -> None:
    site.write("17", note="old")
    await ensure(lab)
    await lab.start(app(lab))
    await lab.engine.workloads.stop("r1", 10.0)
    (folder_of(site) / "note").write_text("new")

    await ensure(lab)
    await lab.engine.volumes.ensure("17", uid=0, size_mb=128)  # grows
    await lab.restart()
    await lab.start(app(lab, "r2"))

    assert await lab.get("r2", "read", "note") == "new"
    assert fill_of(site.cluster) == "done"


async def test_a_claim_of_before_is_not_filled(lab: Lab, site: MovedSite) -> None:
    await ensure(lab)
    site.write("17", note="old")

    await lab.start(app(lab))

    assert await lab.get("r1", "read", "note") == ""


async def test_a_deleted_volume_does_not_come_back_from_the_machine(lab: Lab, site: MovedSite) -> None:
    site.write("17", note="old")
    await ensure(lab)
    await lab.engine.volumes.discard("17")

    await ensure(lab)
    await lab.start(app(lab))
    await lab.engine.volumes.purge("17")

    assert await lab.get("r1", "read", "note") == ""
    assert not (site.folders / "17").exists()


async def test_a_process_that_ends_meanwhile_is_followed_by_one_that_goes_on(lab: Lab, site: MovedSite) -> None:
    site.write("17", **{f"part{number}": "x" * MB for number in range(60)})
    await ensure(lab)
    first = asyncio.create_task(lab.engine.workloads.start(app(lab)))

    def has_begun() -> bool:
        return len(list(folder_of(site).glob("part*"))) > 3 if folder_of(site).exists() else False

    await lab.wait_for(has_begun)
    first.cancel()
    await asyncio.wait({first})
    unfinished = fill_of(site.cluster)
    await lab.restart({})

    await lab.start(app(lab))

    assert (unfinished, fill_of(site.cluster)) == ("pending", "done")
    assert len(await lab.get("r1", "read", "part59")) == MB
    assert len(list(folder_of(site).iterdir())) == 60


async def test_a_start_without_room_for_the_files_says_so_and_is_repeated(lab: Lab, site: MovedSite) -> None:
    site.write("17", note="kept")
    await ensure(lab)
    del site.cluster.kubelet.images[IMAGE]

    with pytest.raises(CannotStart, match=r"not copied to the cluster yet, .* cannot be pulled"):
        await lab.engine.workloads.start(app(lab))
    site.cluster.kubelet.images[IMAGE] = PLATFORM
    await lab.start(app(lab))

    assert await lab.get("r1", "read", "note") == "kept"


async def test_a_command_waits_for_the_files(lab: Lab, site: MovedSite) -> None:
    site.write("17", note="kept")
    await ensure(lab)

    end = await lab.engine.commands.run(app(lab), ["true"], lambda *_: None, timeout_s=60.0)

    assert end.code == 125
    assert "its volume has no files yet" in (end.why or "")
