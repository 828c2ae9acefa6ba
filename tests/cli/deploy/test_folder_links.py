"""Links in a folder that is deployed: no file from outside of the folder is sent."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from tests.cli.deploy.folders import git, repository, write

from moorage.cli.deploy import archive
from moorage.cli.deploy.snapshot import Snapshot

LINK = "120000"  # mode of a link in git
PRIVATE = "a private key"
LINKS = {  # name: target; the folder is two levels below the private file
    "assets/key": "../../private/key",
    "assets/copy.css": "style.css",
    "assets/chain": "key",
    "assets/loop": "loop",
    "config": ".git/config",
    "env": ".env",
    "folder": "../private",
    "gone": "missing",
}

pytestmark = [
    pytest.mark.boundary("stranger-to-user", "A link in a deployed folder publishes no file from outside of it."),
    pytest.mark.usefixtures("cache"),
]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, {"private/key": PRIVATE, "private/more/key": PRIVATE})
    site = write(tmp_path / "site", {"index.html": "page", "assets/style.css": "a{}", ".env": "KEY=1"})
    for name, target in LINKS.items():
        (site / name).symlink_to(target)
    return site


def contents(packed: Path) -> dict[str, str]:
    with zipfile.ZipFile(packed) as opened:
        return {name: opened.read(name).decode() for name in opened.namelist()}


@pytest.mark.parametrize("has_git", [True, False], ids=["git", "no git"])
def test_an_archive_has_links_to_its_own_files_only_and_names_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch, has_git: bool
) -> None:
    if not has_git:
        monkeypatch.setattr(archive, "find_git", lambda: None)
    lines: list[str] = []

    with archive.packed(folder, lines.append) as (packed, count):
        files = contents(packed)

    assert files == {"index.html": "page", "assets/style.css": "a{}", "assets/copy.css": "a{}"}
    assert count == 3
    assert "left out the link assets/key: it does not lead to a file that is sent" in lines
    assert len(lines) == archive.MAX_NAMED_LINKS + 1


def test_a_folder_that_was_replaced_by_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    write(folder, {"more/key": "public"})
    first = Snapshot(folder)
    first.prepare()  # The index has more/key from now on.
    del first
    (folder / "more" / "key").unlink()
    (folder / "more").rmdir()
    (folder / "more").symlink_to(tmp_path / "private" / "more")

    with archive.packed(folder, lambda _: None) as (packed, _):
        files = contents(packed)

    assert PRIVATE not in files.values()
    assert "more/key" not in files


def test_files_of_this_machine_are_left_out_without_git_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "find_git", lambda: None)
    write(folder, {".env.production.local": "KEY=2", ".git/config": "[core]"})

    assert not {".env", ".env.production.local", ".git/config"} & set(archive.list_files(folder))


@pytest.mark.parametrize("is_repository", [True, False], ids=["repository", "plain folder"])
def test_a_commit_has_the_links_of_nested_repositories_as_links(folder: Path, is_repository: bool) -> None:
    theme = write(folder / "theme", {"style.css": "b{}", "odd\nname": "c", "more/key": "public", ".env": "KEY=1"})
    (theme / "key").symlink_to("../../private/key")
    (theme / "folder").symlink_to("../../private")
    repository(theme, {"tracked": "t"})
    git(theme, "rm", "-q", "--cached", ".env")
    (theme / "more" / "key").unlink()
    (theme / "more").rmdir()
    (theme / "more").symlink_to("../../private/more")
    if is_repository:
        repository(folder, {})

    for _ in range(2):  # The second time, the cache has the files of the first one.
        made = Snapshot(folder)
        made.prepare()
        staged = made._git.run("ls-files", "-z", "--stage").decode().split("\0")
        tree = made._git.run("write-tree").decode().strip()
        texts = {name: made._git.run("cat-file", "blob", f"{tree}:{name}").decode() for name in names_of(staged)}
        del made

    modes = {each.partition("\t")[2]: each[:6] for each in staged if each}
    assert PRIVATE not in texts.values()
    assert modes["theme/key"] == modes["theme/folder"] == modes["assets/key"] == LINK
    assert texts["theme/key"] == "../../private/key"
    assert texts["theme/odd\nname"] == "c"
    assert texts["theme/style.css"] == "b{}"
    assert modes["theme/tracked"] == "100644"
    assert "theme/more/key" not in modes
    assert "theme/.env" not in modes


def names_of(staged: list[str]) -> list[str]:
    return [each.partition("\t")[2] for each in staged if each]
