"""Caches of builds: each project's own, kept between builds, and never too large together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.runtime.builds.build_support import write_files

from moorage.core.kit import folders
from moorage.runtime.builds import caches
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed


def used(root: Path, name: str, size: int, at: int) -> None:
    """Let a build of a project leave a cache of some size."""
    with caches.held(root, name) as cache:
        assert cache is not None
        cache.open(is_clean=False)
        (cache.files / "data").write_bytes(bytes(size))
        cache.note_size()
    os.utime(root / name, (at, at))


def test_the_cache_that_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    for at, name in enumerate(("project-1", "project-2", "project-3", "project-4")):
        used(tmp_path, name, 100_000, at)
    used(tmp_path, "project-1", 100_000, 10)

    removed = caches.trim(tmp_path, most_bytes=250_000)

    assert removed == ["project-3", "project-2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["project-1", "project-4"]


@pytest.mark.parametrize(
    ("total_gb", "free_gb", "limit_gb"), [(20, 15, 2), (100, 80, 5), (1000, 500, 20), (100, 6, 3), (100, 1, 2)]
)
def test_caches_together_have_a_part_of_the_disk(total_gb: int, free_gb: int, limit_gb: int) -> None:
    assert caches.limit(total_gb * 2**30, free_gb * 2**30) == limit_gb * 2**30


def test_a_cache_in_use_is_not_removed(tmp_path: Path) -> None:
    used(tmp_path, "project-1", 100_000, 1)

    with caches.held(tmp_path, "project-1"):
        kept = caches.trim(tmp_path, most_bytes=10)
        stood = (tmp_path / "project-1" / "files" / "data").exists()

    assert (kept, stood) == ([], True)
    assert caches.trim(tmp_path, most_bytes=10) == ["project-1"]


def test_what_others_keep_in_the_same_folder_is_left_alone(tmp_path: Path) -> None:
    write_files(tmp_path, {"functions.v2/1-a/x": "1", ".build-0/x": "1", ".0123456789abcdef/x": "1"})
    before = sorted(tmp_path.iterdir())

    caches.trim(tmp_path, most_bytes=0)

    assert sorted(tmp_path.iterdir()) == before


def test_a_cache_is_held_by_one_build_at_a_time(tmp_path: Path) -> None:
    with caches.held(tmp_path, "project-1") as first, caches.held(tmp_path, "project-1") as second:
        with caches.held(tmp_path, "project-2") as other:
            assert (first is None, second is None, other is None) == (False, True, False)


@pytest.mark.parametrize("name", ["..", "a/b", "", ".build-0", "A", "a" * 64])
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BuildFailed, match="cannot name a cache"), caches.held(tmp_path, name):
        pass


def test_what_build_tools_remember_comes_back_in_the_next_build(tmp_path: Path) -> None:
    first = write_files(tmp_path / "first", {"node_modules/.cache/x": "1", ".next/cache/y": "2", ".next/page": "3"})
    second = write_files(tmp_path / "second", {"node_modules/lib/z": "4"})

    with caches.held(tmp_path / "caches", "project-1") as cache:
        assert cache is not None
        cache.open(is_clean=False)
        cache.take(Folder(first, ""))
        cache.put_back(Folder(second, ""), os.getuid())

    left = sorted(path.relative_to(first).as_posix() for path in first.rglob("*") if path.is_file())
    assert left == [".next/page"]
    assert ((second / "node_modules/.cache/x").read_text(), (second / ".next/cache/y").read_text()) == ("1", "2")


def test_a_clean_build_finds_nothing(tmp_path: Path) -> None:
    project = write_files(tmp_path / "project", {"node_modules/.cache/x": "1"})
    with caches.held(tmp_path / "caches", "project-1") as cache:
        assert cache is not None
        cache.open(is_clean=False)
        write_files(cache.files, {"npm/a": "1"})
        cache.take(Folder(project, ""))

        cache.open(is_clean=True)
        cache.put_back(Folder(project, ""), os.getuid())

        assert list(cache.files.iterdir()) == []
    assert list((project / "node_modules").iterdir()) == []


def test_links_lead_no_cache_in_or_out(tmp_path: Path) -> None:
    secret = write_files(tmp_path / "secret", {".cache/x": "1", "cache/x": "1"})
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / "node_modules").symlink_to(secret)
    (hostile / ".next").symlink_to(secret)

    with caches.held(tmp_path / "caches", "project-1") as cache:
        assert cache is not None
        cache.open(is_clean=False)
        cache.take(Folder(hostile, ""))
        folders.remove(secret / ".cache")
        write_files(tmp_path / "caches" / "project-1", {"node_modules-cache/y": "2"})
        cache.put_back(Folder(hostile, ""), os.getuid())

    assert sorted(path.name for path in secret.iterdir()) == ["cache"]
    assert (tmp_path / "caches" / "project-1" / "node_modules-cache" / "y").exists()
