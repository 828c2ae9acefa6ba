"""Collecting the output of a build, also of a hostile one."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
from pathlib import Path

import pytest
from tests.runtime.builds.build_support import write_files

from moorage.core.kit import zips, zips_writer
from moorage.runtime.builds import collect
from moorage.runtime.builds.ports import BuildFailed
from moorage.runtime.sandbox.heavy import Refused
from moorage.runtime.workers.runtimes import installed, resolve


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return write_files(tmp_path / "site", {"index.html": "home", "assets/a.js": "1"})


def kinds(folder: Path) -> set[int]:
    return {stat.S_IFMT(path.lstat().st_mode) for path in folder.rglob("*")}


def test_a_plain_folder_stays_as_it_is_and_can_be_packed(site: Path, tmp_path: Path) -> None:
    files = collect.collect(site, "static")
    zips_writer.pack(site, tmp_path / "site.zip")

    packed = zips.inspect(tmp_path / "site.zip", collect.CAPS)

    assert files == 2
    assert [entry.name for entry in packed] == ["assets/a.js", "index.html"]


def test_a_full_disk_is_named_when_a_release_is_packed(site: Path, tmp_path: Path) -> None:
    (site / "index.html").write_text("hello")

    with pytest.raises(Refused, match="No space left on device"):
        collect.pack(str(site), "/dev/full")
    assert collect.pack(str(site), str(tmp_path / "package.zip")) == len(os.listdir(site))


def test_links_that_stay_inside_become_copies(site: Path) -> None:
    (site / "home.html").symlink_to("index.html")
    (site / "all").symlink_to("assets")
    (site / "assets" / "up.html").symlink_to("../home.html")

    files = collect.collect(site, "static")

    assert files == 6
    assert kinds(site) == {stat.S_IFREG, stat.S_IFDIR}
    assert (site / "home.html").read_text() == (site / "all" / "up.html").read_text() == "home"


@pytest.mark.parametrize("target", ["/etc/passwd", "../beside", "../../..", "assets/../../beside"])
def test_a_link_that_leads_out_is_refused_by_its_name(site: Path, target: str) -> None:
    write_files(site.parent, {"beside": "secret"})
    (site / "assets" / "leak").symlink_to(target)
    (site / "leak").symlink_to(target)

    with pytest.raises(BuildFailed, match="leak' is a link that leads out"):
        collect.collect(site, "static")

    assert "secret" not in [path.read_text() for path in site.rglob("*") if path.is_file() and not path.is_symlink()]


def test_a_link_by_way_of_a_link_out_is_refused(site: Path) -> None:
    (site / "one").symlink_to("two/passwd")
    (site / "two").symlink_to("/etc")

    with pytest.raises(BuildFailed, match="leads out"):
        collect.collect(site, "static")


@pytest.mark.parametrize(
    ("target", "why"), [("nowhere", "leads nowhere"), ("loop", "leads nowhere"), (".", "that it lies in itself")]
)
def test_links_that_lead_nowhere_or_around_are_refused(site: Path, target: str, why: str) -> None:
    (site / "loop").symlink_to(target)

    with pytest.raises(BuildFailed, match=why):
        collect.collect(site, "static")


def test_folders_that_link_to_each_other_are_refused(site: Path) -> None:
    write_files(site, {"a/x": "1", "b/x": "1"})
    (site / "a" / "b").symlink_to("../b")
    (site / "b" / "a").symlink_to("../a")

    with pytest.raises(BuildFailed, match="lies in itself"):
        collect.collect(site, "static")


def test_links_that_would_multiply_are_cut_off(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MAX_SITE_FILES", 1000)
    for level in range(40):
        write_files(site, {f"{level}/file": "1"})
        for name in ("left", "right"):
            (site / str(level) / name).symlink_to(f"../{level + 1}")
    write_files(site, {"40/file": "1"})

    with pytest.raises(BuildFailed, match="with its links replaced by copies it has more than"):
        collect.collect(site, "static")


def test_pipes_sockets_and_rights_go(site: Path) -> None:
    os.mkfifo(site / "pipe")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(site / "door"))
    (site / "run").write_text("#!/bin/sh\n")
    (site / "run").chmod(0o6711)
    (site / "index.html").chmod(0o600)

    files = collect.collect(site, "static")

    assert files == 3
    assert sorted(path.name for path in site.iterdir()) == ["assets", "index.html", "run"]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in site.iterdir()}
    assert modes == {"assets": 0o755, "index.html": 0o644, "run": 0o755}


def test_folders_that_nobody_may_read_are_opened(site: Path) -> None:
    write_files(site, {"shut/deep/file": "1"})
    (site / "shut" / "deep").chmod(0)
    (site / "shut").chmod(0)

    assert collect.collect(site, "static") == 3


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (b"bad\xff.html", "not valid UTF-8"),
        (b"new\nline", "control character"),
        (b"back\\slash", "backslash"),
        (b"d/" * 64 + b"x", "64 folders deep"),
        (b"/".join([b"n" * 250] * 5), "1024 characters"),
    ],
)
def test_names_that_no_archive_can_hold_are_refused(site: Path, name: bytes, why: str) -> None:
    path = os.path.join(os.fsencode(site), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb"):
        pass

    with pytest.raises(BuildFailed, match=why):
        collect.collect(site, "static")


def test_a_folder_that_is_far_too_deep_is_refused(site: Path) -> None:
    inner = os.open(site, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=inner)
        deeper = os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = deeper
    os.close(inner)

    with pytest.raises(BuildFailed, match="folders deep"):
        collect.collect(site, "static")


def test_names_that_are_one_on_other_machines_are_refused(site: Path) -> None:
    write_files(site, {"Index.html": "other"})

    with pytest.raises(BuildFailed, match="differ only in upper and lower case"):
        collect.collect(site, "static")


def test_too_many_files_are_refused(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MAX_SITE_FILES", 3)
    write_files(site, {"b": "1", "c": "1"})

    with pytest.raises(BuildFailed, match="it has more than 3 files or 1,024 MB"):
        collect.collect(site, "static")


def test_too_many_bytes_are_refused(site: Path) -> None:
    with (site / "large").open("wb") as file:
        file.truncate(collect.MAX_SITE_BYTES)

    with pytest.raises(BuildFailed, match="more than 50,000 files or 1,024 MB"):
        collect.collect(site, "static")


def test_what_a_repository_has_beside_its_site_is_left_out(site: Path) -> None:
    write_files(
        site, {".git/config": "x", ".env": "x", ".env.local": "x", "node_modules/a/b": "x", ".well-known/x": "x"}
    )

    left = collect.leave_out(site)

    assert left == [".env", ".env.local", ".git", "node_modules"]
    assert sorted(path.name for path in site.iterdir()) == [".well-known", "assets", "index.html"]


def test_the_platform_s_own_place_in_a_site_cannot_be_brought_along(site: Path) -> None:
    write_files(site, {".moorage/spa.html": "mine"})

    collect.collect(site, "static")

    assert not (site / ".moorage").exists()


def test_a_program_that_npm_linked_still_starts(site: Path) -> None:
    program = "#!/usr/bin/env node\nconsole.log(require('./said.js'), process.argv[2])\n"
    write_files(site, {"node_modules/tool/bin.js": program, "node_modules/tool/said.js": "module.exports = 'found'"})
    (site / "node_modules" / ".bin").mkdir()
    (site / "node_modules" / ".bin" / "tool").symlink_to("../tool/bin.js")
    node = installed()[resolve("nodejs") or ""].executable

    collect.collect(site, "container")

    done = subprocess.run(
        [site / "node_modules" / ".bin" / "tool", "it's here"],
        env={"PATH": f"{node.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "found it's here\n"
    assert stat.S_IFLNK not in kinds(site)


def test_a_native_program_that_npm_linked_still_starts(site: Path) -> None:
    (site / "node_modules" / "tool").mkdir(parents=True)
    (site / "node_modules" / ".bin").mkdir()
    shutil.copy(os.path.realpath("/bin/echo"), site / "node_modules" / "tool" / "echo")
    (site / "node_modules" / ".bin" / "tool").symlink_to("../tool/echo")

    collect.collect(site, "container")

    done = subprocess.run([site / "node_modules" / ".bin" / "tool", "a b"], capture_output=True, text=True, check=True)
    assert done.stdout == "a b\n"


# Apps.


def test_bad_links_of_installed_packages_are_left_out_of_an_app_and_told(site: Path) -> None:
    write_files(site.parent, {"beside": "secret"})
    write_files(site, {"node_modules/a/x": "1", ".venv/bin/y": "1"})
    (site / "node_modules" / "a" / "gone").symlink_to("nowhere")
    (site / "node_modules" / "root").symlink_to("..")
    (site / ".venv" / "bin" / "out").symlink_to("../../../beside")
    (site / ".venv" / "bin" / "passwd").symlink_to("/etc/passwd")
    said: list[str] = []

    files = collect.collect(site, "container", root=site, say=said.append)

    assert files == 4
    assert sorted(said) == [
        "left out: '.venv/bin/out', a link that leads out of the folder",
        "left out: '.venv/bin/passwd', a link that leads out of the folder",
        "left out: 'node_modules/a/gone', a link that leads nowhere",
        "left out: 'node_modules/root', a link that leads to a folder that it lies in",
    ]


@pytest.mark.parametrize(("target", "why"), [("nowhere", "leads nowhere"), ("/etc/passwd", "leads out")])
def test_bad_links_of_an_app_s_own_are_refused(site: Path, target: str, why: str) -> None:
    (site / "assets" / "link").symlink_to(target)

    with pytest.raises(BuildFailed, match=why):
        collect.collect(site, "container", root=site)


def test_a_virtual_environment_that_links_to_its_python_gets_it(site: Path) -> None:
    python = installed()[resolve("python") or ""].executable
    (site / ".venv" / "bin").mkdir(parents=True)
    (site / ".venv" / "bin" / "python3").symlink_to(python)
    (site / ".venv" / "bin" / "python").symlink_to("python3")

    collect.collect(site, "container", root=site)

    copy = site / ".venv" / "bin" / "python"
    assert not copy.is_symlink()
    assert copy.read_bytes() == python.read_bytes()
    assert os.access(copy, os.X_OK)


def test_an_app_may_link_to_what_lies_beside_it_in_its_repository(tmp_path: Path) -> None:
    write_files(tmp_path, {"repo/apps/web/a.js": "1", "repo/shared/lib.js": "shared", "outside.js": "secret"})
    web = tmp_path / "repo" / "apps" / "web"
    (web / "node_modules").mkdir()
    (web / "node_modules" / "shared").symlink_to("../../../shared")

    collect.collect(web, "container", root=tmp_path / "repo")
    os.mkfifo(tmp_path / "repo" / "pipe")
    (web / "pipe").symlink_to("../../pipe")

    assert (web / "node_modules" / "shared" / "lib.js").read_text() == "shared"
    with pytest.raises(BuildFailed, match="'pipe' is a link that cannot be followed"):
        collect.collect(web, "container", root=tmp_path / "repo")


def test_names_of_an_app_may_differ_only_in_case_and_are_packed_and_unpacked(site: Path, tmp_path: Path) -> None:
    write_files(site, {"Index.html": "other"})

    collect.collect(site, "container")
    zips_writer.pack(site, tmp_path / "app.zip")
    zips.extract(tmp_path / "app.zip", tmp_path / "app", collect.APP_CAPS)

    assert ((tmp_path / "app/Index.html").read_text(), (tmp_path / "app/index.html").read_text()) == ("other", "home")
    with pytest.raises(zips.BadArchive, match="same name"):
        zips.inspect(tmp_path / "app.zip", collect.CAPS)


def test_an_app_may_be_larger_than_a_site(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MAX_SITE_FILES", 1)
    with (site / "large").open("wb") as file:
        file.truncate(collect.MAX_SITE_BYTES)
    files = collect.collect(site, "container")
    monkeypatch.setattr(collect, "MAX_APP_FILES", 2)

    with pytest.raises(BuildFailed, match="it has more than 2 files or 2,048 MB"):
        collect.collect(site, "container")

    assert files == 3
