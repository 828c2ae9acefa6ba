"""What apps keep is in a backup, whatever they put there and whatever they do meanwhile."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from tests.platform.backup_support import quiet, settings_for, tree, write

from moorage.platform.backups import backup, restore


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
