"""Installing dependencies: refusals before an install runs, and the cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.products.functions.dependencies import cache as install_cache
from moorage.products.functions.dependencies import inputs
from moorage.products.functions.dependencies.failures import InstallFailed
from moorage.products.functions.dependencies.installer import SandboxInstaller
from moorage.settings import Settings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("runtime", "file"), [("nodejs:19", "package.json"), ("python:3.8", "requirements.txt")])
async def test_a_runtime_that_went_away_is_named_and_nothing_is_installed(
    settings: Settings, tmp_path: Path, runtime: str, file: str
) -> None:
    (tmp_path / file).write_text("{}")

    with pytest.raises(InstallFailed, match=f"{runtime} is not installed here any more"):
        await SandboxInstaller(settings).install(1, tmp_path, runtime)

    assert [path.name for path in tmp_path.iterdir()] == [file]


LONG = "a" * 300


@pytest.mark.parametrize(
    "line", [f"-r {LONG}", f"-c{LONG}", f"-f {LONG}", f"{LONG}.whl", f"-r {'a/' * 3000}", "-r a\x00b", "-f a\x00b"]
)
def test_a_file_name_that_no_file_can_have_is_no_input_of_an_install(tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"{line}\n")

    assert inputs.of_python(tmp_path) == inputs.Inputs(("requirements.txt",), is_fixed=False)


@pytest.mark.boundary("tenant-to-tenant", "Cached dependencies that were made without an organization are removed.")
async def test_cache_entries_of_earlier_formats_are_removed_and_others_stay(settings: Settings) -> None:
    cache = settings.folder("build-cache")
    former = ["a" * 64, ".0123456789abcdef", "functions.v1"]
    current = ["functions.v2/1-x", "project-1", ".build-0"]
    for name in (*former, *current):
        (cache / name / "harbor").mkdir(parents=True)

    removed = install_cache.remove_former(settings)

    assert removed == 3
    assert not any((cache / name).exists() for name in former)
    assert all((cache / name / "harbor").is_dir() for name in current)
    assert install_cache.remove_former(settings) == 0


async def test_the_cache_entry_that_was_used_longest_ago_goes_first(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install_cache, "MAX_BYTES", 250_000)
    cache, folder = install_cache.InstallCache(settings), settings.folder("build-cache") / install_cache.FOLDER
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "data").write_bytes(bytes(100_000))
    for at, key in enumerate(("1-a", "1-b")):
        cache.keep(key, tmp_path / "packages")
        os.utime(folder / key, (at, at))

    cache.keep("2-c", tmp_path / "packages")

    assert sorted(path.name for path in folder.iterdir()) == ["1-b", "2-c"]
    assert cache.take("1-a", tmp_path / "taken") is False
    assert cache.take("1-b", tmp_path / "taken") is True
    assert (tmp_path / "taken" / "data").stat().st_size == 100_000
