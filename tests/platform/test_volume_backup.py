"""What apps keep is in a backup, whatever they put there and whatever they do meanwhile."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.platform.backup_support import quiet, settings_for, tree, write

from moorage.core.kit import folders
from moorage.platform.backups import backup, restore, volume_copies

# Exchanges each folder `<n>/a` with the link `<n>/b`, again and again.
EXCHANGE = """
import ctypes, os, sys
renameat2 = ctypes.CDLL(None).renameat2
pairs = [(f"{each}/a".encode(), f"{each}/b".encode()) for each in os.listdir(".")]
print("begun", flush=True)
while True:
    for a, b in pairs:
        renameat2(-100, a, -100, b, 2)
"""


def test_volumes_come_back_with_their_owners_and_modes(data: Path, tmp_path: Path) -> None:
    write(data / "volumes/3/notes/a.txt", b"kept", 0o640)
    (data / "volumes/3/empty").mkdir()
    if os.getuid() == 0:
        os.chown(data / "volumes/3/notes/a.txt", 500_000_003, 500_000_003)

    backup.back_up(settings_for(data), tmp_path / "b", snapshot=None, report=quiet)
    restore.restore(settings_for(tmp_path / "copy"), tmp_path / "b", force=False, running=False, report=quiet)

    restored = tmp_path / "copy/volumes/3/notes/a.txt"
    assert tree(tmp_path / "copy", "volumes") == tree(data, "volumes")
    assert restored.stat().st_uid == (data / "volumes/3/notes/a.txt").stat().st_uid
    assert not (data / "volumes/.backup").exists()


def test_what_is_no_file_is_left_out_and_said(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(data / "volumes/3/a.txt", b"kept")
    (data / "volumes/3/link").symlink_to(data / "keys/master_key")
    os.mkfifo(data / "volumes/3/pipe")
    os.close(os.open(os.fsencode(data / "volumes/3") + b"/\xff", os.O_CREAT | os.O_WRONLY, 0o600))
    said: list[str] = []
    with socket.socket(socket.AF_UNIX) as sock:
        monkeypatch.chdir(data / "volumes/3")
        sock.bind("door")
        made = backup.back_up(settings_for(data), tmp_path / "b", snapshot=None, report=said.append)

    assert [name for name in made.files if name.startswith("volumes/")] == ["volumes/3/a.txt"]
    assert any("left out of volumes: 4 " in line for line in said)


def test_an_app_that_never_stops_writing_does_not_keep_it_from_being_backed_up(data: Path, tmp_path: Path) -> None:
    log, done = data / "volumes/3/log", threading.Event()
    write(log, b"begun\n")

    def go_on() -> None:
        with log.open("ab", buffering=0) as file:
            while not done.is_set():
                file.write(b"more\n" * 100)

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        made = backup.back_up(settings_for(data), tmp_path / "b", snapshot=None, report=quiet)
    finally:
        done.set()
        writer.join()

    assert made.files["volumes/3/log"].size > len(b"begun\n")


def make_nested(top: Path, name: str, levels: int) -> None:
    """Create folders in each other, with a file at every hundredth level."""
    top.mkdir(parents=True)
    handle = os.open(top, os.O_RDONLY)
    for level in range(levels):
        os.mkdir(name, dir_fd=handle)
        below = os.open(name, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
        if level % 100 == 99:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=handle))
    os.close(handle)


@pytest.fixture
def nested(data: Path) -> Iterator[Callable[[str, str, int], None]]:
    """Function that nests folders in the data folder; pytest itself cannot remove them."""
    made: list[Path] = []

    def make(below: str, name: str, levels: int) -> None:
        made.append(data / below)
        make_nested(data / below, name, levels)

    yield make
    for each in made:
        folders.remove(each)


@pytest.mark.parametrize(("name", "kept"), [("d", 2), ("x" * 250, 0)])
def test_folders_that_are_nested_too_deep_are_left_out_and_reported(
    data: Path, nested: Callable[[str, str, int], None], name: str, kept: int
) -> None:
    nested("volumes/3/deep", name, 600)
    write(data / "volumes/3/a.txt", b"kept")
    said: list[str] = []

    made = backup.back_up(settings_for(data), data.parent / "b", snapshot=None, report=said.append)
    restore.restore(settings_for(data.parent / "copy"), data.parent / "b", force=False, running=False, report=quiet)

    names = [each for each in made.files if each.startswith("volumes/")]
    assert sorted(each.rpartition("/")[2] for each in names) == ["a.txt", *["file"] * kept]
    assert any("left out of volumes: 1 files and folders that are nested more than 256 levels deep" in x for x in said)
    assert (data.parent / "copy/volumes/3/a.txt").read_bytes() == b"kept"


def test_a_deep_copy_of_an_interrupted_backup_is_removed(data: Path, nested: Callable[[str, str, int], None]) -> None:
    write(data / "volumes/3/a.txt", b"kept")
    nested("volumes/.backup/3", "d", 1500)

    made = backup.back_up(settings_for(data), data.parent / "b", snapshot=None, report=quiet)

    assert "volumes/3/a.txt" in made.files
    assert not (data / "volumes/.backup").exists()


@contextmanager
def exchanging(volume: Path) -> Iterator[None]:
    """Run the program that exchanges folders and links of a volume."""
    with subprocess.Popen([sys.executable, "-c", EXCHANGE], cwd=volume, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            yield
        finally:
            process.kill()


@pytest.mark.boundary("code-to-host", "A backup of a volume has no file from outside of the volume.")
def test_a_folder_that_becomes_a_link_while_it_is_copied_leads_to_no_other_file(data: Path, tmp_path: Path) -> None:
    write(tmp_path / "outside/file", b"private")
    for number in range(200):
        write(data / f"volumes/3/{number}/a/file", b"own")
        (data / f"volumes/3/{number}/b").symlink_to(tmp_path / "outside")
    contents: list[bytes] = []

    with exchanging(data / "volumes/3"):
        for _ in range(4):
            with volume_copies.copied(settings_for(data), quiet) as copies:
                assert copies is not None
                contents += [path.read_bytes() for path in copies.rglob("file")]

    assert set(contents) == {b"own"}


def test_copies_leave_no_descriptor_open(data: Path, nested: Callable[[str, str, int], None]) -> None:
    nested("volumes/3/deep", "d", 300)
    before = len(os.listdir("/proc/self/fd"))

    with volume_copies.copied(settings_for(data), quiet):
        pass

    assert len(os.listdir("/proc/self/fd")) == before
