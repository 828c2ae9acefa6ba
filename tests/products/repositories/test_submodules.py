"""Submodules: the repositories that their addresses name, and the folders that they may go to."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.products.repositories.support import Checkout

from moorage.products.repositories import submodules
from moorage.products.repositories.git import Git
from moorage.products.repositories.names import Name
from moorage.products.repositories.submodules import Submodule

PARENT = Name("quay", "site")
HOSTS = submodules.hosts_of("https://code.example", "http://moorage.example:8080/git")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://code.example/octo/tide.git", "octo/tide"),
        ("https://code.example/octo/tide/", "octo/tide"),
        ("https://ada:secret@code.example/octo/tide", "octo/tide"),
        ("git://code.example/octo/tide.git", "octo/tide"),
        ("ssh://git@code.example:22/octo/tide.git", "octo/tide"),
        ("git@code.example:octo/tide.git", "octo/tide"),
        ("http://moorage.example:8080/git/quay/tide.git", "quay/tide"),
        ("../tide.git", "quay/tide"),
        ("../../octo/tide", "octo/tide"),
    ],
)
def test_an_address_names_a_repository(url: str, name: str) -> None:
    assert str(submodules.name_of(url, PARENT, HOSTS)) == name


@pytest.mark.parametrize(
    "url",
    [
        "https://other.example/octo/tide.git",
        "https://code.example.other.example/octo/tide.git",
        "https://other.example:code.example/octo/tide.git",
        "git@other.example:octo/tide.git",
        "file:///etc/passwd",
        "/etc/passwd",
        "https://code.example/octo",
        "https://code.example/octo/tide/more",
        "https://code.example/-o/--upload-pack=x",
        "ext::sh -c id",
        "../../../etc/passwd/x",
        "../..",
        "https://[::1/octo/tide",
        "",
    ],
)
def test_an_address_of_another_place_names_none(url: str) -> None:
    assert submodules.name_of(url, PARENT, HOSTS) is None


@pytest.mark.anyio
async def test_submodules_are_links_of_the_commit_with_addresses_of_its_settings(tmp_path: Path) -> None:
    work = Checkout.init(tmp_path / "work")
    (work.folder / ".gitmodules").write_text(
        '[submodule "a"]\n\tpath = themes/a b\n\turl = ../a\n[submodule "none"]\n\tpath = gone\n\turl = ../gone\n'
        '[submodule "b.c"]\n\tpath = b/\n\turl = x=y\n[include]\n\tpath = /etc/passwd\n'
    )
    for number, path in enumerate(("themes/a b", "b", "unnamed")):
        work.git("update-index", "--add", "--cacheinfo", f"160000,{number}{'a' * 39},{path}")
    work.git("add", ".gitmodules")
    work.git("commit", "--quiet", "--message=linked")
    head = work.git("rev-parse", "HEAD")

    found = await submodules.read(Git(tmp_path, 10_000_000), work.folder / ".git", head)

    assert found == [
        Submodule("b", "1" + "a" * 39, "x=y"),
        Submodule("themes/a b", "0" + "a" * 39, "../a"),
        Submodule("unnamed", "2" + "a" * 39, ""),
    ]


def test_only_an_empty_folder_that_no_link_leads_to_is_filled(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (target / "themes" / "tide").mkdir(parents=True)
    (target / "full").mkdir()
    (target / "full" / "file").touch()
    (target / ".GIT" / "hooks").mkdir(parents=True)
    (tmp_path / "outside" / "inner").mkdir(parents=True)
    (target / "link").symlink_to(tmp_path / "outside")

    assert submodules.folder_of(target, "themes/tide") == target / "themes" / "tide"
    for path in (
        "full",
        "full/file",
        "link",
        "link/inner",
        "../outside/inner",
        ".GIT/hooks",
        "none",
        "",
        "themes//tide",
    ):
        assert submodules.folder_of(target, path) is None, path
