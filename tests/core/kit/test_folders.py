"""Folders with untrusted content."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from moorage.core.kit import folders


def dig(folder: Path, depth: int) -> None:
    """Nest folders deeper than the maximum length of a path."""
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=inner)
        deeper = os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = deeper
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=inner))
    os.close(inner)


def test_folders_deeper_than_any_path_are_removed(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").touch()
    dig(tmp_path / "deep", 2100)

    folders.remove(tmp_path / "deep")

    assert list(tmp_path.iterdir()) == []


def test_removing_follows_no_link_and_may_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "gone" / "inner").mkdir(parents=True)
    (tmp_path / "gone" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "gone" / "inner").chmod(0)

    for name in ("gone", "link", "gone"):
        folders.remove(tmp_path / name)

    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == ["kept", "kept/file"]


def test_what_is_used_counts_blocks_and_every_entry(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(100):
        (tmp_path / "many" / str(number)).touch()
    with (tmp_path / "hole").open("wb") as sparse:
        sparse.truncate(2**30)
    (tmp_path / "data").write_bytes(os.urandom(100_000))

    used = folders.used_bytes(tmp_path)

    assert 100_000 + 100 * 4096 <= used < 1_000_000


def test_a_folder_that_is_too_deep_to_be_counted_counts_as_endless(tmp_path: Path) -> None:
    dig(tmp_path, 300)

    assert folders.used_bytes(tmp_path) == folders.ENDLESS_BYTES
    with pytest.raises(OSError, match="name too long"):
        list(folders.walk(tmp_path))


def test_a_folder_that_is_given_away_loses_what_acts_for_its_owner(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "run").write_text("x")
    (tmp_path / "inner" / "run").chmod(0o6755)
    (tmp_path / "inner" / "link").symlink_to("/etc/passwd")
    dig(tmp_path / "inner", 300)

    folders.change_owner(tmp_path, os.getuid())

    assert stat.S_IMODE((tmp_path / "inner" / "run").stat().st_mode) == 0o755
    assert Path("/etc/passwd").stat().st_uid == 0


def test_walking_yields_each_folder_before_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").touch()
    (tmp_path / "a" / "link").symlink_to(tmp_path)

    names = [os.path.relpath(entry.path, tmp_path) for entry in folders.walk(tmp_path)]

    assert names.index("a") < names.index("a/b") < names.index("a/b/c")
    assert sorted(names) == ["a", "a/b", "a/b/c", "a/link"]


def test_a_folder_that_is_not_there_is_an_error_unless_that_is_fine(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(folders.walk(tmp_path / "not-there"))

    assert list(folders.walk(tmp_path / "not-there", is_lenient=True)) == []
