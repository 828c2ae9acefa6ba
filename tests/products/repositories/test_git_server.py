"""Pushing to and cloning from the built-in git server, with the real git client over a real socket."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.products.repositories.support import PATIENCE_S, Checkout, Harbor, Listener, kill, wait_for


def fsck(folder: Path) -> str:
    return subprocess.run(["git", "fsck", "--strict"], cwd=folder, capture_output=True, text=True, check=True).stdout


def test_the_first_push_makes_the_repository_and_a_clone_gives_it_back(
    harbor: Harbor, work: Checkout, tmp_path: Path
) -> None:
    sha = work.git("rev-parse", "HEAD")

    work.git("push", harbor.url("quay/first.git"), "main")
    copy = work.clone(harbor.url("quay/first.git"), tmp_path / "copy")

    assert copy.git("rev-parse", "HEAD") == sha
    assert (copy.folder / "index.html").read_text() == "<h1>Harbor</h1>"


@pytest.mark.parametrize("version", ["0", "2"])
def test_every_version_of_the_protocol_clones_whole_and_shallow(
    harbor: Harbor, work: Checkout, tmp_path: Path, version: str
) -> None:
    work.commit("the second", index_html="newer")
    url, speak = harbor.url(f"quay/version-{version}.git"), f"--config=protocol.version={version}"
    work.git("push", url, "main")

    whole = work.clone(url, tmp_path / "whole", speak)
    shallow = work.clone(url, tmp_path / "shallow", speak, "--depth=1")
    spoken = work.git("-c", f"protocol.version={version}", "ls-remote", url)

    assert whole.git("rev-list", "--count", "HEAD") == "2"
    assert shallow.git("rev-list", "--count", "HEAD") == "1"
    assert work.git("rev-parse", "HEAD") in spoken


def test_the_output_of_a_push_shows_the_lines_of_what_follows_it(
    harbor: Harbor, listener: Listener, work: Checkout
) -> None:
    listener.lines = ["Building \x1b[31mquay", "two\nat once", "http://quay.localhost:8081"]

    said = work.git("push", harbor.url("quay/lines.git"), "main")

    shown = [line.strip() for line in re.findall(r"remote: (.*)", said)]
    assert shown == ["Building [31mquay", "two", "at once", "http://quay.localhost:8081"]
    assert "[new branch]" in said


def test_who_listens_hears_of_branches_that_were_created_or_moved_and_of_nothing_else(
    harbor: Harbor, listener: Listener, work: Checkout
) -> None:
    url, first = harbor.url("Quay/Heard.git"), work.git("rev-parse", "HEAD")

    work.git("push", url, "main", "HEAD:refs/heads/feature/one")
    second = work.commit("the second")
    work.git("tag", "v1")
    work.git("push", harbor.url("quay/heard"), "main", "v1", ":refs/heads/feature/one")
    work.git("push", url, "v1:refs/tags/v2")

    told = [{update.branch: (update.old, update.new) for update in push.updates} for push in listener.pushes]
    assert told == [
        {"main": ("0" * 40, first), "feature/one": ("0" * 40, first)},
        {"main": (first, second)},
    ]
    assert {(push.org_id, push.repository) for push in listener.pushes} == {(harbor.org.id, "Quay/Heard")}
    assert {push.actor.user_id for push in listener.pushes} == {harbor.user.id}


def test_a_push_that_git_refuses_is_not_told_to_anybody(harbor: Harbor, listener: Listener, work: Checkout) -> None:
    url = harbor.url("quay/refused.git")
    work.git("push", url, "main")
    work.git("commit", "--amend", "--message=another first")
    listener.pushes.clear()

    said = work.git("push", url, "main", fails=True)
    work.git("push", "--force", url, "main")

    assert "rejected" in said
    assert [push.updates[0].new for push in listener.pushes] == [work.git("rev-parse", "HEAD")]


def test_a_clone_checks_out_the_branch_that_was_pushed_first(harbor: Harbor, tmp_path: Path) -> None:
    work = Checkout.init(tmp_path / "work", branch="trunk")
    work.commit(page_html="hello")

    work.git("push", harbor.url("quay/trunk.git"), "trunk")
    copy = work.clone(harbor.url("quay/trunk.git"), tmp_path / "copy")

    assert copy.git("rev-parse", "--abbrev-ref", "HEAD") == "trunk"
    assert (copy.folder / "page.html").read_text() == "hello"


def test_a_branch_whose_name_is_no_text_is_stored_and_followed_by_nobody(harbor: Harbor, work: Checkout) -> None:
    url, odd = harbor.url("quay/odd.git"), os.fsdecode(b"HEAD:refs/heads/caf\xe9")

    work.git("push", url, odd)

    assert len(work.git("ls-remote", url).splitlines()) == 1
    assert harbor.listener.pushes == []


def test_what_has_a_gits_folder_in_it_is_refused(harbor: Harbor, work: Checkout) -> None:
    blob = work.git("hash-object", "-w", "index.html")
    entry = b"100644 .git\x00" + bytes.fromhex(blob)
    tree = work.git("hash-object", "-t", "tree", "-w", "--stdin", "--literally", stdin=entry)
    commit = work.git("commit-tree", tree, "-m", "evil")

    said = work.git("push", harbor.url("quay/evil.git"), f"{commit}:refs/heads/main", fails=True)

    assert "hasDotgit" in said
    assert harbor.listener.pushes == []


def test_no_hook_runs(harbor: Harbor, work: Checkout, tmp_path: Path) -> None:
    url, mark = harbor.url("quay/hooked.git"), tmp_path / "ran"
    work.git("push", url, "main")
    hooks = harbor.folder("quay/hooked") / "hooks"
    hooks.mkdir()
    for name in ("pre-receive", "update", "post-receive", "post-update", "proc-receive", "reference-transaction"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (hooks / name).chmod(0o755)

    work.commit("the second")
    said = work.git("push", url, "main")

    assert "main -> main" in said
    assert not mark.exists()


def test_a_push_over_the_cap_is_refused_with_a_sentence(harbor: Harbor, work: Checkout) -> None:
    url = harbor.url("quay/heavy.git")
    work.git("push", url, "main")
    work.commit("heavy", blob_bin=os.urandom(1_500_000))

    said = work.git("push", url, "main", fails=True)

    assert "remote: The push is larger than 1 MB" in said
    assert "main -> main (too large)" in said
    assert work.git("ls-remote", url, "main").split()[0] == work.git("rev-parse", "HEAD~1")
    assert harbor.incoming == []


def test_a_repository_over_the_cap_is_refused_with_a_sentence(harbor: Harbor, work: Checkout) -> None:
    url = harbor.url("quay/growing.git")
    for round_ in range(2):
        work.commit("more", **{f"blob{round_}_bin": os.urandom(900_000)})
        work.git("push", url, "main")
    work.commit("too much", blob9_bin=os.urandom(900_000))

    said = work.git("push", url, "main", fails=True)

    assert "remote: The repository would be larger than 2 MB" in said
    assert "main -> main (no room)" in said
    assert work.git("ls-remote", url, "main").split()[0] == work.git("rev-parse", "HEAD~1")


def test_a_client_that_is_killed_while_it_sends_leaves_everything_as_it_was(
    harbor: Harbor, work: Checkout, stalling: Stalling
) -> None:
    work.git("push", harbor.url("quay/killed.git"), "main")
    before = work.git("rev-parse", "HEAD")
    work.commit("the second", blob_bin=os.urandom(500_000))

    client = work.start(
        "-c", "http.postBuffer=65536", "push", harbor.url("quay/killed.git", port=stalling.port), "main"
    )
    assert stalling.is_stuck.wait(PATIENCE_S)
    kill(client)
    stalling.close()

    assert work.git("ls-remote", harbor.url("quay/killed.git"), "main").split()[0] == before
    assert fsck(harbor.folder("quay/killed")) == ""
    work.git("push", harbor.url("quay/killed.git"), "main")
    assert [len(push.updates) for push in harbor.listener.pushes] == [1, 1]


def test_a_client_that_goes_away_takes_nothing_but_its_own_view(harbor: Harbor, work: Checkout) -> None:
    harbor.listener.lines = ["Building"]
    harbor.listener.go_on.clear()

    client = work.start("push", harbor.url("quay/gone.git"), "main")
    assert client.stderr is not None
    assert "remote: Building" in client.stderr.readline()
    kill(client)
    harbor.listener.go_on.set()

    wait_for(lambda: len(harbor.listener.ended) == 1)
    assert work.git("ls-remote", harbor.url("quay/gone.git"), "main").split()[0] == work.git("rev-parse", "HEAD")


def test_pushes_at_once_to_one_repository_leave_it_whole(harbor: Harbor, tmp_path: Path) -> None:
    url, clients = harbor.url("quay/crowd.git"), []
    for number in range(6):
        work = Checkout.init(tmp_path / f"work{number}")
        work.commit(f"by {number}", page_html=str(number))
        clients.append((work, work.start("push", url, f"HEAD:refs/heads/b{number}", "HEAD:refs/heads/main")))

    codes = [client.communicate() and client.returncode for _, client in clients]

    lines = clients[0][0].git("ls-remote", "--heads", url).splitlines()
    heads = {name: sha for sha, name in (line.split("\t") for line in lines)}
    assert len(heads) == 7, codes
    assert heads["refs/heads/main"] in {sha for name, sha in heads.items() if name != "refs/heads/main"}
    assert fsck(harbor.folder("quay/crowd")) == ""


class Stalling:
    """A proxy to the server that forwards only the first bytes of a client."""

    def __init__(self, port: int, most: int) -> None:
        self._to, self._left = port, most
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listening]
        self.port = self._listening.getsockname()[1]
        self.is_stuck = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            self._open += [near, far]
            threading.Thread(target=self._pass_on, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(far, near, False), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, is_counted: bool) -> None:
        try:
            while data := one.recv(8192):
                self._left -= len(data) if is_counted else 0
                if is_counted and self._left < 0:
                    self.is_stuck.set()
                    continue
                other.sendall(data)
        except OSError:
            return
        other.close()


@pytest.fixture
def stalling(harbor: Harbor) -> Iterator[Stalling]:
    made = Stalling(harbor.server.port, 100_000)
    yield made
    made.close()
