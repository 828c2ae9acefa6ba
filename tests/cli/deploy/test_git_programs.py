"""git reads a deployed folder without starting programs that its configuration names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.cli.deploy.folders import git, repository, write

from moorage.cli.deploy.archive import list_files
from moorage.cli.deploy.git import has_changes
from moorage.cli.deploy.snapshot import Snapshot

ATTRIBUTES = {".gitattributes": "*.txt filter=odd.name\n"}


@pytest.fixture(autouse=True)
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that exists once a program of a configuration ran."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = write(tmp_path, {"program": f'#!/bin/sh\necho "$@" >> {tmp_path}/marker\nexit 1\n'}) / "program"
    program.chmod(0o755)
    return tmp_path / "marker"


def add_programs(config: Path, program: Path) -> None:
    """Name a program wherever the configuration of a repository can."""
    hooks = config.parent / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "pre-auto-gc", "reference-transaction"):
        shutil.copy(program, hooks / name)
    with config.open("a") as file:
        file.write(
            f"""
[core]
    fsmonitor = {program} fsmonitor
    hooksPath = {hooks}
    pager = {program} pager
    sshCommand = {program} ssh
    alternateRefsCommand = {program} refs
[log]
    showSignature = true
[gpg]
    program = {program} gpg
[diff]
    external = {program} diff
[filter "odd.name"]
    clean = {program} clean
    smudge = {program} smudge
    process = {program} process
    required = true
"""
        )


def touch(path: Path) -> None:
    """Change the time of a file, and keep its size, so that git compares its content."""
    path.write_text(path.read_text().swapcase())
    os.utime(path, (1, 1))


@pytest.mark.boundary(
    "stranger-to-user", "A deployment starts no program that the configuration of a repository names."
)
def test_no_program_of_a_configuration_is_started(tmp_path: Path, marker: Path) -> None:
    submodule = repository(tmp_path / "submodule", {**ATTRIBUTES, "sub.txt": "one"})
    folder = repository(tmp_path / "site", {**ATTRIBUTES, "index.html": "page", "top.txt": "one"})
    git(folder, "submodule", "--quiet", "add", str(submodule), "library")
    git(folder, "commit", "--quiet", "-m", "with a submodule")
    nested = repository(folder / "theme", {**ATTRIBUTES, "theme.txt": "one"})
    git(folder, "init", "--quiet", "--bare", "bare")
    for config in (folder / ".git", folder / ".git/modules/library", nested / ".git", folder / "bare"):
        add_programs(config / "config", tmp_path / "program")
    for path in (folder / "top.txt", folder / "library/sub.txt", nested / "theme.txt"):
        touch(path)

    listed = list_files(folder)
    snapshot = Snapshot(folder)
    snapshot.prepare()
    changed = [has_changes(each) for each in (folder, nested, folder / "bare")]

    assert not marker.exists(), marker.read_text()
    assert changed == [True, True, False]
    assert {"index.html", "bare/HEAD"} <= set(listed)
    staged = snapshot._git.run("ls-files").decode().split()
    assert {"top.txt", "library/sub.txt", "theme/theme.txt"} <= set(staged)


@pytest.mark.boundary(
    "stranger-to-user", "A deployment starts no program that the configuration of a repository names."
)
def test_a_missing_object_is_not_fetched(tmp_path: Path, marker: Path) -> None:
    folder = repository(tmp_path / "site", {"index.html": "page", "assets/style.css": "a{}"})
    tree = git(folder, "rev-parse", "HEAD:").strip()
    with (folder / ".git/config").open("a") as file:
        file.write(
            f"""
[core]
    repositoryformatversion = 1
    sshCommand = {tmp_path}/program ssh
[extensions]
    partialClone = origin
[remote "origin"]
    url = ssh://127.0.0.1/site
    promisor = true
[protocol]
    allow = always
"""
        )
    (folder / ".git/objects" / tree[:2] / tree[2:]).unlink()

    Snapshot(folder / "assets").open()
    has_changes(folder)

    assert not marker.exists(), marker.read_text()


def test_a_file_with_a_filter_is_sent_as_it_is_in_the_folder(tmp_path: Path, marker: Path) -> None:
    folder = repository(tmp_path / "site", {**ATTRIBUTES, "large.txt": "pointer"})
    add_programs(folder / ".git/config", tmp_path / "program")
    unchanged = has_changes(folder)
    (folder / "large.txt").write_text("content")

    snapshot = Snapshot(folder)
    snapshot.prepare()

    assert not unchanged
    assert snapshot._git.run("cat-file", "blob", ":large.txt") == b"content"
    assert not marker.exists()
