"""A full disk is a refusal on every route that stores bytes, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.core.http.lab import one_store
from tests.e2e.functions_support import form, zip_of
from tests.mounts import own_mounts
from tests.platform.control_process import ControlProcess, Replied, control_process

from moorage.app import App

# Tests share a disk and the processes on it.
pytestmark = pytest.mark.group("full-disk")

MB = 2**20
DISK_MB = 96
RESERVE_MB = 32
PYTHON = "def main(params):\n    return {}\n"
SMALL = zip_of({"main.py": PYTHON, "index.html": "<h1>Harbor</h1>"})
LARGE = zip_of({"main.py": PYTHON, "index.html": "<h1>Harbor</h1>", "noise": os.urandom(4 * MB)})
JSON = {"Content-Type": "application/json"}
PUSH = {"Content-Type": "application/x-git-receive-pack-request"}
GIT = "/git/acme/harbor.git"


@dataclass
class SmallDisk:
    """A disk of which all but some megabytes can be taken. An ordinary user has no small one, but a large reserve."""

    folder: Path
    reserve_mb: int

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def leave(self, free_bytes: int) -> None:
        """Fill the disk until so much is left; an ordinary user's no further than below the reserve."""
        if os.getuid() != 0:
            free_bytes = (self.reserve_mb - 8) * MB
        with (self.folder / "filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, max(self.free_bytes - free_bytes, 1))

    def make_room(self) -> None:
        (self.folder / "filler").unlink()


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    folder = tmp_path_factory.mktemp("disk")
    if os.getuid() != 0:
        disk = SmallDisk(folder, 0)
        disk.reserve_mb = disk.free_bytes // MB - 256
        yield disk
        return
    with own_mounts():
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(folder)], check=True)
        yield SmallDisk(folder, RESERVE_MB)
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def control(
    request: pytest.FixtureRequest, small_disk: SmallDisk, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlProcess]:
    """A control process whose data is on the small disk, with a function to deploy to."""
    folder = tmp_path_factory.mktemp("control")
    flags = ["--disk-reserve-mb", str(request.param if os.getuid() == 0 else small_disk.reserve_mb)]
    with control_process(folder, *flags, data=small_disk.folder / folder.name) as started:
        made = started.call("POST", "/v1/functions", *form(SMALL, name="known", runtime="python"))
        assert made.status == 200, made.body
        yield started


def site(archive: bytes, name: str) -> tuple[bytes, dict[str, str]]:
    body, headers = form(archive, name=name)
    return body.replace(b'name="code"', b'name="staticFiles"'), headers


UPLOADS: dict[str, Callable[[bytes], tuple[bytes, dict[str, str]]]] = {
    "/v1/functions": lambda archive: form(archive, name="harbor", runtime="python"),
    "/v1/functions/known/deploy": form,
    "/v1/projects/static-upload": lambda archive: site(archive, "harbor"),
}


def check_refused(reply: Replied) -> None:
    assert reply.status == 402, reply.body
    assert reply.json["success"] is False
    assert reply.json["error"]["code"] == "quota_exceeded"
    assert reply.json["error"]["traceId"] == reply.headers["x-request-id"]


def check_push_refused(reply: Replied) -> None:
    """Git shows plain text to the person in front of it."""
    assert (reply.status, reply.headers["content-type"]) == (402, "text/plain; charset=utf-8")
    assert b"disk is almost full" in reply.body


def left_behind(data: Path) -> list[str]:
    """Return the files of requests that are over."""
    patterns = ("uploads/*", "git/incoming/*", "code/.new-*", "releases/.new-*", "artifacts/**/*#*")
    return [str(path) for pattern in patterns for path in data.glob(pattern)]


@one_store
@pytest.mark.anyio
async def test_these_are_all_routes_that_take_a_file(app: App) -> None:
    takers = {route.path for route in app.routes if route.upload is not None}

    assert takers == {path.replace("known", "{name}") for path in UPLOADS}


@pytest.mark.parametrize("control", [RESERVE_MB], indirect=True)
def test_below_the_reserve_no_body_is_stored_and_rows_still_are(control: ControlProcess, small_disk: SmallDisk) -> None:
    small_disk.leave((small_disk.reserve_mb - 8) * MB)
    for path, body_of in UPLOADS.items():
        check_refused(control.call("POST", path, *body_of(SMALL)))
    check_push_refused(control.call("GET", f"{GIT}/info/refs?service=git-receive-pack"))
    check_push_refused(control.call("POST", f"{GIT}/git-receive-pack", b"0000", PUSH))
    row = control.call("POST", "/v1/api-tokens", b'{"name": "Harbor"}', JSON)

    left = left_behind(control.data)
    small_disk.make_room()
    stored = [control.call("POST", path, *body_of(SMALL)).status for path, body_of in UPLOADS.items()]

    assert row.status == 200
    assert left == []
    assert stored == [200, 200, 200]


@pytest.mark.parametrize("control", [0], indirect=True)
def test_a_disk_that_fills_in_the_middle_of_a_body_is_the_same_refusal(
    control: ControlProcess, small_disk: SmallDisk
) -> None:
    """Bodies come in chunks, so that their length is not known before; without a reserve, the disk itself refuses."""
    small_disk.leave(1 * MB)
    for path, body_of in UPLOADS.items():
        body, headers = body_of(LARGE)
        check_refused(control.call("POST", path, iter((body,)), headers))
    check_push_refused(control.call("POST", f"{GIT}/git-receive-pack", iter((LARGE,)), PUSH))
    left = left_behind(control.data)
    small_disk.make_room()
    stored = control.call("POST", "/v1/functions", *UPLOADS["/v1/functions"](LARGE))

    assert left == []
    assert stored.status == 200


@pytest.mark.parametrize("control", [0], indirect=True)
def test_a_store_on_a_full_disk_refuses_rows_until_there_is_room(
    control: ControlProcess, small_disk: SmallDisk
) -> None:
    """An ordinary user cannot fill a disk here, and sees that rows are taken in the reserve."""
    small_disk.leave(0)
    for _ in range(1000 if os.getuid() == 0 else 2):
        reply = control.call("POST", "/v1/api-tokens", b'{"name": "Harbor"}', JSON)
        if reply.status != 200:
            break
    small_disk.make_room()
    again = control.call("POST", "/v1/api-tokens", b'{"name": "Harbor"}', JSON)

    if os.getuid() == 0:
        check_refused(reply)
    assert again.status == 200
