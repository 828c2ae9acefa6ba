"""Backups of real data folders, made by the real command: they hold all that cannot be rebuilt, or there is no file."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import socket
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.command import environment, fill, in_store, moorage, running, secret_of
from tests.platform.backup_support import ARTIFACT, kill_when, quiet, settings_for, size_of, tree, write

from moorage.accounts.identity.operators import commands as operator
from moorage.platform.backups import archive, backup, restore
from moorage.platform.backups.backup import CannotBackUp


def test_a_backup_restored_into_a_new_folder_is_the_same_platform(data: Path, tmp_path: Path) -> None:
    file, copy = tmp_path / "moorage.tar.gz", tmp_path / "copy"

    made = moorage("backup", file, "--data", data)
    restored = moorage("restore", file, "--data", copy)

    assert (made.returncode, restored.returncode) == (0, 0), made.stderr + restored.stderr
    assert "backup succeeded" in made.stdout
    rest = ("artifacts", "databases", "keys", "instance")
    assert tree(copy, *rest) == tree(data, *rest)
    assert (copy / "databases/7/pg_notify").is_dir()
    assert in_store(copy, secret_of) == "hunter2"
    assert not any((copy / "trash").iterdir())


def test_the_archive_opens_with_a_manifest_of_every_file(file: Path) -> None:
    with tarfile.open(file) as tar:
        first, *others = tar.getmembers()
        manifest = json.loads(tar.extractfile(first).read())  # type: ignore[union-attr]
        contents = {each.name: tar.extractfile(each).read() for each in others if each.isfile()}  # type: ignore[union-attr]

    assert first.name == "manifest.json"
    assert set(manifest) == {"format", "version", "created_at", "moorage", "files", "folders"}
    assert {name: (entry["sha256"], entry["size"]) for name, entry in manifest["files"].items()} == {
        name: (hashlib.sha256(content).hexdigest(), len(content)) for name, content in contents.items()
    }
    assert manifest["files"][ARTIFACT]["mode"] == 0o644


def test_only_what_the_rest_can_be_rebuilt_from_is_in_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sites/a/index.html", "logs/x.log", "trash/old", "uploads/u", "store/snapshots/1.db", "engines/pg"):
        write(data / name, b"x")
    write(data / f"{ARTIFACT}#1", b"half an upload")
    write(data / "keys/master_key.partial", b"half a key")
    with socket.socket(socket.AF_UNIX) as sock:
        monkeypatch.chdir(data / "databases/7")  # The path of a unix socket must be short.
        sock.bind(".s.PGSQL")
        made = backup.back_up(settings_for(data), tmp_path / "b", snapshot=None, report=quiet)

    assert set(made.files) == {
        "instance",
        "store/moorage.db",
        "keys/master_key",
        "keys/session_secret",
        ARTIFACT,
        "databases/7/base/1",
    }


def test_a_backup_is_readable_by_its_owner_alone_and_never_overwrites(data: Path, file: Path) -> None:
    before = file.read_bytes()

    again = moorage("backup", file, "--data", data)

    assert again.returncode == 1
    assert "exists already" in again.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes() == before
    assert not file.with_name(file.name + ".partial").exists()


def test_a_running_platform_is_backed_up_with_what_it_has_just_written(tmp_path: Path) -> None:
    data, copy, file = tmp_path / "d", tmp_path / "copy", tmp_path / "moorage.tar.gz"
    in_store(data, fill)

    with running(data):
        created = moorage("admin", "create-user", "late@example.com", "--data", data)
        made = moorage("backup", file, "--data", data)

    assert (created.returncode, made.returncode) == (0, 0), made.stderr
    assert moorage("restore", file, "--data", copy).returncode == 0
    assert in_store(copy, lambda tx: operator.get_user(tx, "late@example.com").email) == "late@example.com"
    assert in_store(copy, secret_of) == "hunter2"


@pytest.mark.deep
def test_a_running_platform_is_not_overwritten(data: Path, file: Path) -> None:
    with running(data):
        restored = moorage("restore", file, "--data", data, "--force")

    assert restored.returncode == 1
    assert "stop it first" in restored.stderr
    assert in_store(data, secret_of) == "hunter2"


CRASHING = """
import asyncio, sys, time
from pathlib import Path
from moorage.platform import opening
from moorage.settings import Settings
from tests.command import fill

opened = opening.open_store(Settings(_env_file=None, data=Path(sys.argv[1])))
asyncio.run(opened.db.write(fill))
print("written", flush=True)
time.sleep(600)
"""


@pytest.mark.deep
def test_what_was_committed_before_a_crash_is_in_the_backup(tmp_path: Path) -> None:
    data, file, copy = tmp_path / "data", tmp_path / "b.tar.gz", tmp_path / "copy"
    env = environment() | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", CRASHING, str(data)], stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.kill()
    assert (data / "store/moorage.db-wal").stat().st_size > 0

    backup.back_up(settings_for(data), file, snapshot=None, report=quiet)
    restore.restore(settings_for(copy), file, force=False, running=False, report=quiet)

    assert in_store(copy, secret_of) == "hunter2"


@pytest.mark.deep
def test_a_store_on_postgresql_is_left_to_pg_dump_and_said_so(data: Path, tmp_path: Path) -> None:
    file, url = tmp_path / "files.tar.gz", "postgresql://moorage@db.example/moorage"

    refused = moorage("backup", file, "--data", data, DATABASE_URL=url)
    made = moorage("backup", file, "--data", data, "--files-only", DATABASE_URL=url)
    misplaced = moorage("restore", file, "--data", tmp_path / "copy")
    restored = moorage("restore", file, "--data", tmp_path / "copy", DATABASE_URL=url)

    assert [each.returncode for each in (refused, made, misplaced, restored)] == [1, 0, 1, 0]
    assert "pg_dump" in refused.stderr
    assert "store is not part of it" in made.stdout
    assert "MOORAGE_DATABASE_URL" in misplaced.stderr
    assert not (tmp_path / "copy/store/moorage.db").exists()
    assert (tmp_path / "copy" / ARTIFACT).read_bytes() == (data / ARTIFACT).read_bytes()


def test_files_only_is_refused_where_the_store_is_a_file(data: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotBackUp, match="part of a backup"):
        backup.back_up(settings_for(data), tmp_path / "b", snapshot=None, report=quiet, files_only=True)


@pytest.mark.parametrize("name", ["data/store/b", "data/keys/b", "nowhere/b"])
def test_a_place_that_cannot_hold_the_backup_is_refused(data: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(CannotBackUp):
        backup.back_up(settings_for(data), tmp_path / name, snapshot=None, report=quiet)

    assert not (tmp_path / name).exists()


def test_a_link_in_the_data_is_refused_by_name(data: Path, tmp_path: Path) -> None:
    (data / "artifacts/link").symlink_to("/etc/passwd")

    with pytest.raises(CannotBackUp, match="artifacts/link is a link"):
        backup.back_up(settings_for(data), tmp_path / "b", snapshot=None, report=quiet)


def test_a_folder_without_a_store_is_refused_and_not_made(tmp_path: Path) -> None:
    refused = moorage("backup", tmp_path / "b", "--data", tmp_path / "typo")

    assert refused.returncode == 1
    assert "there is no store" in refused.stderr
    assert not (tmp_path / "typo").exists()


def test_a_file_that_goes_away_meanwhile_starts_the_copy_over(tmp_path: Path) -> None:
    data, asked = tmp_path / "data", []
    in_store(data, fill)

    def snapshot() -> Path:
        asked.append(1)
        return data / ("gone.db" if len(asked) == 1 else "store/moorage.db")

    made = backup.back_up(settings_for(data), tmp_path / "b", snapshot=snapshot, report=quiet)

    assert len(asked) == 2
    assert made == archive.scan(tmp_path / "b", report=quiet)


def test_files_that_never_hold_still_end_the_backup_without_a_file(tmp_path: Path) -> None:
    in_store(tmp_path / "data", fill)

    with pytest.raises(CannotBackUp, match="keep changing"):
        backup.back_up(
            settings_for(tmp_path / "data"), tmp_path / "b", snapshot=lambda: tmp_path / "gone", report=quiet
        )

    assert not list(tmp_path.glob("b*"))


@pytest.mark.deep
def test_a_backup_that_is_killed_leaves_no_file_and_the_next_one_succeeds(data: Path, tmp_path: Path) -> None:
    file, partial = tmp_path / "b.tar.gz", tmp_path / "b.tar.gz.partial"
    write(data / "artifacts/large", random.Random(1).randbytes(24 * 2**20))

    code = kill_when(lambda: size_of(partial) > 2**20, "backup", file, "--data", data)
    left = file.exists()
    again = moorage("backup", file, "--data", data)

    assert (code, left) == (-signal.SIGKILL, False)
    assert again.returncode == 0, again.stderr
    assert moorage("restore", file, "--data", tmp_path / "copy").returncode == 0
    assert (tmp_path / "copy/artifacts/large").read_bytes() == (data / "artifacts/large").read_bytes()
    assert not partial.exists()
    assert not (data / "store/backup.partial").exists()
