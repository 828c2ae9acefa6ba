"""Deleted files that an app still has open count, and the disk reserve stops the app that grows."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mounts import own_mounts
from tests.runtime.engines.engine_support import APP_UID, Engine, Replica, engine_of
from tests.runtime.workers.invoker_support import MODE_PARAMS, give, until

MB = 2**20
HOLD = """
import os, sys, time
def fill(path, size):
    held = os.open(path, os.O_RDWR | os.O_CREAT)
    os.unlink(path)
    for _ in range(size >> 20):
        os.write(held, b"x" * (1 << 20))
    return held
"""


@pytest.fixture(scope="module", params=MODE_PARAMS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with own_mounts(), engine_of(request.param) as made:
        yield made


def boundary(promise: str) -> pytest.MarkDecorator:
    return pytest.mark.boundary("tenant-to-tenant", promise)


def lose(app: Replica, code: str) -> None:
    """Run code that may end the app before it answers."""
    with contextlib.suppress(ConnectionError, OSError, ValueError):
        app.run(HOLD + code)


@boundary("A deleted file that an app holds open counts against the disk of the app.")
def test_a_deleted_file_that_is_still_open_counts_and_its_app_is_started_again_without_it(engine: Engine) -> None:
    app = engine.lab(volume=engine.volume(), disk_mb=8)

    lose(app, "__builtins__['held'] = fill('/data/a', 12 << 20)")
    state = app.until(restarts=1, is_listening=True)

    assert state["reason"] == "its disk is full (8 MB)"
    assert app.run("answer = attempt(write, '/data/b')") == "done"  # Its disk space is free again.
    app.stop()


@boundary("The usage of an app's disk shows the deleted files that the app holds open.")
def test_usage_shows_deleted_files_once_however_many_descriptors_lead_to_them(engine: Engine) -> None:
    app = engine.lab(volume=engine.volume(), disk_mb=64)

    app.run(HOLD + "held = fill('/data/a', 12 << 20); __builtins__['held'] = [held, os.dup(held)]\n"
            "__builtins__['child'] = subprocess.Popen(['/bin/sleep', '600'], pass_fds=[held])")  # fmt: skip

    used = until(lambda: app.look()["disk_bytes"])
    assert 12 * MB <= used < 14 * MB
    app.stop()


@boundary("A deleted file that an app holds only by a mapping counts against the disk of the app.")
def test_a_deleted_file_that_is_only_mapped_counts(engine: Engine) -> None:
    app = engine.lab(volume=engine.volume(), disk_mb=64)

    app.run(
        HOLD
        + """
held = fill('/data/a', 12 << 20)
ctypes.CDLL(None).mmap(None, ctypes.c_size_t(12 << 20), 3, 1, held, ctypes.c_long(0))  # read and write, shared
os.close(held)
"""
    )

    used = until(lambda: app.look()["disk_bytes"])
    assert 12 * MB <= used < 14 * MB
    app.stop()


@boundary("A process does not hide its deleted files by ending its first thread.")
def test_a_process_whose_first_thread_has_exited_hides_nothing(engine: Engine) -> None:
    app = engine.lab(volume=engine.volume(), disk_mb=64)

    # The child fills a file, and its main thread exits while another one stays.
    app.run(
        HOLD
        + """
child = os.fork()
if child == 0:
    held = fill('/data/a', 12 << 20)
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
    )

    used = until(lambda: app.look()["disk_bytes"])
    assert 12 * MB <= used < 14 * MB
    app.stop()


class SmallDisk:
    """A disk of 160 MB with 64 MB reserved. An unprivileged user cannot mount it, and reserves more instead."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.reserve_mb = 64
        self._folder: Path | None = None

    def __enter__(self) -> SmallDisk:
        if os.getuid() != 0:
            found = os.statvfs(self._engine.home)
            self.reserve_mb = found.f_bavail * found.f_frsize // MB - 96
            return self
        self._folder = Path(tempfile.mkdtemp(prefix="small-"))
        image = self._folder / "image"
        with image.open("wb") as file:
            file.truncate(168 * MB)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
        (self._folder / "disk").mkdir()
        subprocess.run(["mount", "-o", "loop", str(image), str(self._folder / "disk")], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            subprocess.run(["umount", "--lazy", str(self._folder / "disk")], check=True)
            shutil.rmtree(self._folder)

    def lab(self, name: str) -> Replica:
        """Start an app with a volume on this disk."""
        volume = self._engine.volume()
        if self._folder is not None:
            volume = str(self._folder / "disk" / name)
            os.mkdir(volume)
            self._folder.chmod(0o755)
            give(Path(volume), self._engine.mode)
            if self._engine.mode == "root":
                os.chown(volume, APP_UID, APP_UID)
        return self._engine.lab(volume=volume, disk_mb=1024, reserve_mb=self.reserve_mb)


@boundary("An app that fills the disk of the machine is stopped when the reserve is reached; others go on.")
def test_the_app_that_grows_is_stopped_at_the_reserve_and_the_other_one_goes_on(engine: Engine) -> None:
    with SmallDisk(engine) as disk:
        quiet, app = disk.lab("quiet"), disk.lab("busy")

        lose(app, "__builtins__['held'] = fill('/data/a', 120 << 20)")
        state = app.until(restarts=1, is_listening=True)

        assert state["reason"] == "the disk of this machine is nearly full"
        assert quiet.run("answer = attempt(write, '/data/b')") == "done"
        assert quiet.look()["restarts"] == 0
        app.stop()
        quiet.stop()


@boundary("A deleted file whose only descriptor is in flight in a socket cannot use up the reserve of the machine.")
def test_a_file_that_no_process_holds_is_found_by_what_was_written(engine: Engine) -> None:
    with SmallDisk(engine) as disk:
        app = disk.lab("hiding")

        lose(app, """
ends = socket.socketpair()
held = fill('/data/a', 60 << 20)
socket.send_fds(ends[0], [b"x"], [held])
os.close(held)
__builtins__['ends'] = ends
held = fill('/data/b', 60 << 20)
socket.send_fds(ends[0], [b"x"], [held])
os.close(held)
""")  # fmt: skip
        state = app.until(restarts=1, is_listening=True)

        assert state["reason"] == "the disk of this machine is nearly full"
        app.stop()
