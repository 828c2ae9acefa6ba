"""Archives that depend only on the content of a folder."""

from __future__ import annotations

import os
from pathlib import Path

from moorage.core.kit import zips, zips_writer

CAPS = zips.Caps(packed_bytes=2**20, unpacked_bytes=2**20)


def make(folder: Path, names: list[str], *, at: int, mode: int = 0o644) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        path.chmod(mode)
        os.utime(path, (at, at))
    (folder / "empty").mkdir()
    return folder


def test_equal_folders_have_equal_archives_whoever_made_them_and_when(tmp_path: Path) -> None:
    names = ["b/c.txt", "a.txt", "b/a.txt", "ü.txt"]
    one = make(tmp_path / "one", names, at=1_000_000_000, mode=0o600)
    two = make(tmp_path / "two", names[::-1], at=1_700_000_000, mode=0o644)

    zips_writer.pack(one, tmp_path / "one.zip")
    zips_writer.pack(two, tmp_path / "two.zip")

    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_what_was_packed_comes_out_again(tmp_path: Path) -> None:
    folder = make(tmp_path / "one", ["a.txt", "b/run"], at=1)
    (folder / "b" / "run").chmod(0o755)

    files = zips_writer.pack(folder, tmp_path / "one.zip")
    entries = zips.extract(tmp_path / "one.zip", tmp_path / "out", CAPS)

    assert [(entry.name, entry.is_folder, entry.executable) for entry in entries] == [
        ("a.txt", False, False),
        ("b/run", False, True),
        ("empty", True, False),
    ]
    assert (tmp_path / "out" / "b" / "run").read_text() == "b/run"
    assert files == 2


def test_an_executable_bit_makes_another_archive(tmp_path: Path) -> None:
    folder = make(tmp_path / "one", ["a"], at=1)
    zips_writer.pack(folder, tmp_path / "one.zip")
    (folder / "a").chmod(0o700)

    zips_writer.pack(folder, tmp_path / "two.zip")

    assert (tmp_path / "one.zip").read_bytes() != (tmp_path / "two.zip").read_bytes()
