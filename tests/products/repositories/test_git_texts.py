"""Unit tests of names, packets and the environment of git."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from moorage.errors import BadRequest
from moorage.products.repositories.git import Git, git_version
from moorage.products.repositories.names import Name, is_branch, is_commit, parse_name
from moorage.products.repositories.server import pushes
from moorage.products.repositories.server.pktline import FLUSH, BadPacket, Packets, band, packet, read_packet


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("octo/site", Name("octo", "site")),
        ("octo/site.git", Name("octo", "site")),
        ("Octo-1/my_site.io", Name("Octo-1", "my_site.io")),
        ("a/" + "b" * 100, Name("a", "b" * 100)),
        ("_/_", Name("_", "_")),
    ],
)
def test_a_name_is_an_owner_and_a_repository(text: str, name: Name) -> None:
    assert parse_name(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a/",
        "/b",
        "a/b/c",
        "a/.git",
        "a/..",
        "../b",
        "-a/b",
        "a/-b",
        ".a/b",
        "a/b c",
        "a/b\n",
        "ä/b",
        "a/b;id",
        "a/" + "b" * 101,
        "a/$(id)",
        "a/b\0",
        "a\\b/c",
        "--upload-pack=x/y",
    ],
)
def test_anything_else_is_no_name(text: str) -> None:
    assert parse_name(text) is None


@pytest.mark.parametrize("text", ["main", "feature/one", "v1.2", "ä", "a@b", "x-y_z", "dependabot/npm/a-1.0"])
def test_branches_are_what_git_takes_for_branches(text: str) -> None:
    assert is_branch(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-x",
        "--upload-pack=x",
        ".x",
        "a/.b",
        "a..b",
        "a b",
        "a~1",
        "a^",
        "a:b",
        "a?",
        "a*",
        "a[",
        "a\\b",
        "@",
        "@{1}",
        "a.lock",
        "a.lock/b",
        "a/",
        "/a",
        "a//b",
        "a.",
        "a\n",
        "a\0",
        "a\x7f",
        "x" * 201,
        "\udc80",
    ],
)
def test_anything_else_is_no_branch(text: str) -> None:
    assert not is_branch(text)


@pytest.mark.parametrize("text", ["", "abcdef", "g" * 40, "1" * 65, "-1234567", "1234567\n", "HEAD"])
def test_a_commit_is_hexadecimal(text: str) -> None:
    assert not is_commit(text)
    assert is_commit("0123456789abcdefABCDEF")


def test_packets_come_out_as_they_went_in_however_they_are_cut() -> None:
    sent = [packet(b"one"), FLUSH, packet(b""), packet(b"x" * 65516), b"0001"]
    stream, packets, found = b"".join(sent), Packets(), list[bytes]()

    for at in range(0, len(stream), 7):
        found += packets.feed(stream[at : at + 7])

    assert found == sent


@pytest.mark.parametrize("data", [b"zzzz", b"-001", b"+001", b"0x10", b"fff5", b"\xff\xff\xff\xff"])
def test_what_has_no_length_is_no_packet(data: bytes) -> None:
    with pytest.raises(BadPacket):
        Packets().feed(data)
    with pytest.raises(BadPacket):
        read_packet(io.BytesIO(data))


def test_long_texts_are_cut_to_the_room_of_the_band() -> None:
    assert band(2, b"abcde", 2) == packet(b"\x02ab") + packet(b"\x02cd") + packet(b"\x02e")


NOTHING, COMMIT = "0" * 40, "1" * 40
LIMITED_PUSH = pytest.mark.boundary("tenant-to-tenant", "The command list of a push is bounded before it is parsed.")


def push_of(*lines: str | bytes) -> io.BytesIO:
    """Return the command list of a push."""
    packets = [packet(line if isinstance(line, bytes) else line.encode()) for line in lines]
    return io.BytesIO(b"".join(packets) + FLUSH)


def test_a_push_is_read_as_its_commands_and_the_capabilities_of_the_first() -> None:
    request = pushes.read(
        push_of(
            f"shallow {COMMIT}",
            f"{NOTHING} {COMMIT} refs/heads/main\0 report-status agent=git/2",
            f"{COMMIT} {NOTHING} refs/heads/old\0 side-band-64k\n",
            b"%b %b refs/heads/\xff" % (NOTHING.encode(), COMMIT.encode()),
        )
    )

    references = [command.reference for command in request.commands]
    assert references == ["refs/heads/main", "refs/heads/old", "refs/heads/\udcff"]
    assert [command.deletes for command in request.commands] == [False, True, False]
    assert request.capabilities == {"report-status", "agent=git/2"}


@LIMITED_PUSH
def test_shallow_lines_count_as_commands_do() -> None:
    lines = [f"shallow {number:040x}" for number in range(2 * pushes.MAX_COMMANDS)]

    with pytest.raises(BadRequest, match="10000 references at most"):
        pushes.read(push_of(*lines))


@LIMITED_PUSH
def test_a_command_list_over_the_limit_is_refused() -> None:
    padding = " ".join(["report-status"] * 4000)
    count = pushes.MAX_LIST_BYTES // len(padding) + 1
    lines = [f"{NOTHING} {COMMIT} refs/heads/{number}\0{padding}" for number in range(count)]

    with pytest.raises(BadRequest, match="may have 4 MB at most"):
        pushes.read(push_of(*lines))


@LIMITED_PUSH
@pytest.mark.parametrize("line", [f"{NOTHING} {COMMIT} refs/heads/" + "x" * 1000, "shallow " + "1" * 1001])
def test_a_reference_with_a_name_over_the_limit_is_refused(line: str) -> None:
    with pytest.raises(BadRequest, match="1000 bytes at most"):
        pushes.read(push_of(line))


def test_the_machine_has_a_git_that_is_new_enough() -> None:
    found = git_version()

    assert found is not None
    assert int(found.split(".")[0]) >= 2


@pytest.mark.anyio
async def test_git_knows_nothing_of_the_machine_it_runs_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "alias.evil")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "!env")
    monkeypatch.setenv("MOORAGE_MASTER_KEY", "secret")
    empty = tmp_path / "empty"
    empty.mkdir()

    done = await Git(empty, 2**20).run("config", "--list", "--show-origin", cwd=tmp_path, within_s=20)
    seen = await Git(empty, 2**20).run("-c", "alias.show=!env", "show", cwd=tmp_path, within_s=20)
    alias = await Git(empty, 2**20).run("-c", "alias.dump=!env", "dump", cwd=tmp_path, within_s=20)

    assert {line.split("\t")[0] for line in done.text.splitlines()} == {"command line:"}
    assert seen.code != 0  # An alias cannot take a command's place.
    given = dict(line.split("=", 1) for line in alias.text.splitlines() if "=" in line)
    assert "MOORAGE_MASTER_KEY" not in given
    assert (given["HOME"], given["GIT_CONFIG_GLOBAL"]) == (str(empty), os.devnull)
    assert json.dumps(given).count("secret") == 0
