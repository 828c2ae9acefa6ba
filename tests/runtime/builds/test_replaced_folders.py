"""Builds that put a link in the place of a folder which the platform, as root, uses after them."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest
from tests.runtime.builds.build_support import Log, make_app_request, make_request, write_files

from moorage.runtime.builds import caches, collect, outputs
from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.detection import preview
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.node import assets, prune
from moorage.runtime.builds.ports import Assets, BuildFailed, Plan
from moorage.runtime.sandbox import heavy
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

WORKSPACE = {
    "package.json": {"name": "root", "workspaces": ["apps/*", "packages/*"]},
    "apps/web/package.json": {"name": "web", "dependencies": {"@x/lib": "*"}},
    "packages/lib/package.json": {"name": "@x/lib"},
}
STATIC = Plan("static", "nodejs", build="npm run build", output_dir="dist")
SLOW = "(" + "a" * 40 + ")"


@pytest.fixture
def neighbour(tmp_path: Path) -> Path:
    """Return a folder of the host that builds must not change."""
    files = {"secret": "of another tenant", "node_modules/a/index.js": "", ".next/cache/page": "", "dist/name": ""}
    return write_files(tmp_path / "neighbour", files)


def everything(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.boundary("code-to-host", "A build cannot lead the platform's own work on its result out of its folder.")
@pytest.mark.parametrize("wanted", ["static", "container"])
async def test_a_base_folder_that_becomes_a_link_ends_the_build(tmp_path: Path, neighbour: Path, wanted: str) -> None:
    settings = Settings(_env_file=None, data=tmp_path / "data")
    source = write_files(tmp_path / "source", {"app/index.html": "<h1>hi</h1>", "app/server.sh": ""})
    command = f"cd .. && mv app moved && ln -s {neighbour} app"
    request = make_app_request if wanted == "container" else make_request
    before = everything(neighbour)
    log = Log()

    with pytest.raises(BuildFailed, match="replaced the folder app by a link"):
        await Builder(settings, is_sandboxed=True).build(
            request(source, base_dir="app", build_cmd=command, build_dir="./", start_cmd="sh server.sh"), log
        )

    assert everything(neighbour) == before
    assert neighbour.stat().st_uid == os.getuid()
    assert "secret" not in log.text()


@pytest.mark.boundary("code-to-host", "A build cannot lead the platform's own work on its result out of its folder.")
def test_a_cache_neither_takes_nor_puts_files_through_a_link(tmp_path: Path, neighbour: Path) -> None:
    source = write_files(tmp_path / "source", {"a": ""})
    (source / "app").symlink_to(neighbour)
    folder, before = Folder(source, "app"), everything(neighbour)
    with caches.held(tmp_path / "caches", "project-1") as cache:
        assert cache is not None
        cache.open(is_clean=False)
        stored = write_files(tmp_path / "caches" / "project-1", {"installed/evil.js": "", "installed-key": "key"})
        write_files(stored, {"node_modules-cache/evil.js": ""})

        cache.take(folder)
        cache.put_back(folder, os.getuid())
        cache.keep("key", folder, "node_modules")
        is_restored = cache.restore("key", folder, "packages", os.getuid())

    assert not is_restored
    assert everything(neighbour) == before
    assert not (stored / "next-cache").exists()
    assert not (stored / "installed").exists()


@pytest.mark.boundary("code-to-host", "A build cannot lead the platform's own work on its result out of its folder.")
def test_a_link_between_packages_is_created_inside_the_release_only(tmp_path: Path, neighbour: Path) -> None:
    root = write_files(tmp_path / "root", WORKSPACE)
    (root / "node_modules").mkdir()
    (root / "node_modules" / "@x").symlink_to(neighbour)
    link = root / "apps" / "web" / "node_modules" / "@x" / "lib"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../../../packages/lib")
    before = everything(neighbour)

    prune.prune(Folder(root, ""), "apps/web")

    assert everything(neighbour) == before


@pytest.mark.boundary("code-to-host", "A build cannot lead the platform's own work on its result out of its folder.")
def test_a_link_of_the_host_is_not_deleted(tmp_path: Path, neighbour: Path) -> None:
    (neighbour / "lib64").symlink_to("dist")
    output = write_files(tmp_path / "output", {"server.py": ""})
    (output / ".venv").symlink_to(neighbour)

    with pytest.raises(BuildFailed, match="leads out"):
        collect.collect(output, "container", root=output)

    assert (neighbour / "lib64").is_symlink()


@pytest.mark.boundary("code-to-host", "A build cannot lead the platform's own work on its result out of its folder.")
def test_packages_behind_a_link_are_not_deleted(tmp_path: Path, neighbour: Path) -> None:
    source = write_files(tmp_path / "source", {"app.py": ""})
    (source / "frontend").symlink_to(neighbour)

    assets.clear(Assets("frontend", "npm ci", "npm run build"), Folder(source, ""))

    assert (neighbour / "node_modules" / "a").is_dir()


@pytest.mark.boundary("code-to-host", "The log of a build has no names of files outside of its folder.")
@pytest.mark.parametrize("is_default", [True, False])
def test_an_output_folder_that_leads_out_is_not_listed(tmp_path: Path, neighbour: Path, is_default: bool) -> None:
    source = write_files(tmp_path / "source", {"package.json": {"scripts": {"build": "x"}}})
    (source / "dist").symlink_to(neighbour)
    request = make_request(source) if is_default else make_request(source, build_cmd="x")

    with pytest.raises(BuildFailed) as failure:
        outputs.find(request, Folder(source, ""), STATIC, set(), Log().text)  # type: ignore[arg-type]

    assert "leads out of the repository" in str(failure.value)
    assert "secret" not in str(failure.value)


async def test_a_pipe_without_a_writer_does_not_block_the_collection(tmp_path: Path) -> None:
    root = write_files(tmp_path / "root", {"app/server.js": ""})
    os.mkfifo(root / "pipe")
    programs = root / "app" / "node_modules" / ".bin"
    programs.mkdir(parents=True)
    (programs / "x").symlink_to("../../../pipe")

    async with asyncio.timeout(30):
        files = await asyncio.to_thread(collect.collect, root / "app", "container", root=root)

    assert files == 2
    assert (programs / "x").is_file()


def test_many_links_that_are_left_out_are_counted(tmp_path: Path) -> None:
    output = write_files(tmp_path / "output", {"server.js": "", "node_modules/a/index.js": ""})
    for number in range(collect.MAX_NOTES + 7):
        (output / "node_modules" / "a" / f"link-{number}").symlink_to("/nowhere")
    lines: list[str] = []

    collect.collect(output, "container", root=output, say=lines.append)

    assert len(lines) == collect.MAX_NOTES + 1
    assert lines[-1] == "left out: 7 more links of packages"


def test_more_links_than_files_are_allowed_end_the_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MAX_APP_FILES", 5)
    output = write_files(tmp_path / "output", {"server.js": "", "node_modules/a/index.js": ""})
    for number in range(6):
        (output / "node_modules" / "a" / f"link-{number}").symlink_to("/nowhere")

    with pytest.raises(BuildFailed, match="has more than 5 files"):
        collect.collect(output, "container", root=output)


async def test_a_base_folder_that_the_repository_links_is_built_at_its_own_path(tmp_path: Path) -> None:
    settings = Settings(_env_file=None, data=tmp_path / "data")
    source = write_files(tmp_path / "source", {"packages/site/index.html": "<h1>hi</h1>"})
    (source / "site").symlink_to("packages/site")
    request = make_request(source, base_dir="site", build_cmd="mkdir dist && cp index.html dist/index.html")

    built = await Builder(settings, is_sandboxed=True).build(request, Log())

    assert everything(built.folder) == ["index.html"]
    assert built.folder == source / "packages" / "site" / "dist"


def search_for_years(_: str) -> None:
    """Work of a low-priority process that keeps the interpreter lock: a hostile file for a careless expression."""
    re.search(r"(a+)+$", SLOW)


@pytest.mark.boundary("tenant-to-tenant", "No file of a repository stops the process that detects its plan.")
async def test_a_detection_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "PLAN", f"{__name__}:{search_for_years.__name__}")
    monkeypatch.setattr(preview, "TIMEOUT_S", 2.0)
    work = heavy.HeavyWork()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.05)
            ticks += 1

    ticking = asyncio.create_task(tick())
    with pytest.raises(BuildFailed, match="could not be detected within 2 s"):
        await preview.plan_of(work, make_app_request(write_files(tmp_path / "source", {"a": ""})))
    ticking.cancel()

    assert ticks > 5
