"""Folders of a database: names, markers and files that the user of a server may replace."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from moorage.runtime.database_servers import copying, server_folders
from moorage.runtime.database_servers.kinds import kind_of
from moorage.runtime.database_servers.ports import IDENTITY_FILE, ServerFailed
from moorage.runtime.database_servers.postgres import physical_backups
from moorage.runtime.database_servers.server_folders import RESTORED, Restored

JOB = 7


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folders of two databases; returns that of the first, which a restore is about to change."""
    for name in ("41/s1", "41/s2", "42/s1"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "41"


@pytest.mark.boundary("tenant-to-tenant", "The marker of a restore names folders of its own database only.")
def test_a_marker_names_no_folder_of_another_database(root: Path, subtests: Any) -> None:
    outside = root.parent / "42" / "s1"
    for replaces in (str(outside), "../42/s1", "../41/s1", "s1/../../42/s1", "s2", ".", "", "backups-tmp", 1, None):
        (root / "s2" / RESTORED).write_text(json.dumps({"job": JOB, "replaces": replaces}))
        with subtests.test(str(replaces)):
            assert server_folders.find_restored(root, JOB) is None

    (root / "s2" / RESTORED).write_text(json.dumps({"job": JOB}))
    assert server_folders.find_restored(root, JOB) is None
    (root / "s2" / RESTORED).write_text(json.dumps({"job": JOB, "replaces": "s1"}))
    assert server_folders.find_restored(root, JOB) == Restored("s2", "s1")
    assert server_folders.find_restored(root, JOB + 1) is None


def test_a_finished_restore_is_found_again(root: Path) -> None:
    (root / "restore-7").mkdir()

    finished = server_folders.finish_restored(root, "restore-7", JOB, "s2")

    assert finished == server_folders.find_restored(root, JOB) == Restored("s3", "s2")
    with pytest.raises(ServerFailed):
        server_folders.finish_restored(root, "../42/s1", JOB, "s2")


@pytest.mark.parametrize("name", ["", ".", "..", "../42/s1", "/etc", "s1/data", "s1\0"])
def test_a_path_is_no_name_of_a_folder(name: str) -> None:
    with pytest.raises(ServerFailed, match="is no name of a folder"):
        server_folders.checked_name(name)


@pytest.mark.boundary("tenant-to-tenant", "Files in the folder of a server cannot fill the memory of the platform.")
def test_only_small_regular_files_are_markers(root: Path) -> None:
    folder, opened = root / "s1", len(os.listdir("/proc/self/fd"))
    (folder / "folder").mkdir()
    (folder / "deep").write_text("[" * server_folders.MAX_MARKER_BYTES)
    (folder / "large").write_text(json.dumps({"at": 1}) + " " * server_folders.MAX_MARKER_BYTES)
    (folder / "device").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")

    markers = [server_folders.read_marker(folder, name) for name in ("folder", "deep", "large", "device", "pipe")]

    assert markers == [None] * 5
    assert len(os.listdir("/proc/self/fd")) == opened


@pytest.mark.boundary("tenant-to-tenant", "Files in the folder of a server cannot fill the memory of the platform.")
def test_an_identity_file_that_is_a_link_is_not_followed(root: Path) -> None:
    server_folders.seal(root / "s1", 41)
    (root / "s2" / IDENTITY_FILE).symlink_to(root / "s1" / IDENTITY_FILE)
    kind = kind_of("postgresql")
    for name in ("s1", "s2"):
        (root / name / "data" / "global").mkdir(parents=True)
        for file in ("PG_VERSION", "global/pg_control"):
            (root / name / "data" / file).touch()

    complete = [server_folders.is_complete(kind, root / name, 41) for name in ("s1", "s2")]

    assert complete == [True, False]


def test_a_file_above_its_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")

    assert copying.read(tmp_path, "file", 5) == b"12345"
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        copying.read(tmp_path, "file", 4)


@pytest.mark.boundary("tenant-to-tenant", "WAL is read from the archive of a server only, not through links in it.")
def test_an_archive_that_is_a_link_has_no_wal(root: Path, tmp_path: Path) -> None:
    name, other = f"{1:024X}", root.parent / "42" / "s1" / "archive"
    other.mkdir()
    (other / name).write_bytes(b"wal")
    archive = root / "s1" / "archive"
    archive.symlink_to(other)

    assert physical_backups.archived_files(other) == [name]
    assert physical_backups.archived_files(archive) == []
    with pytest.raises(OSError, match="Not a directory"):
        physical_backups.compress_wal(archive, name, tmp_path / "packed")
    os.truncate(other / name, physical_backups.MAX_WAL_FILE_BYTES + 1)
    with pytest.raises(ServerFailed, match="larger than a WAL segment"):
        physical_backups.compress_wal(other, name, tmp_path / "packed")


def test_a_run_folder_that_is_a_link_is_not_opened(root: Path) -> None:
    (root / "s1" / "run").symlink_to(root.parent / "42" / "s1")

    with pytest.raises(ServerFailed, match="no run folder"), copying.short_path(root / "s1" / "run"):
        pass
