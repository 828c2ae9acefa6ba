"""ClamAV checks every file; without a valid answer, no file passes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.scan.clamd_stand_in import StandIn, running
from tests.runtime.scan.samples import elf

from moorage.runtime.scan.clamd import CHUNK, Clamd
from moorage.runtime.scan.service import Finding, Scanner, ScanUnavailable
from moorage.settings import BadSettings, Settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    site = tmp_path / "site"
    site.mkdir()
    (site / "a.html").write_bytes(b"<h1>Hello</h1>")
    (site / "b.bin").write_bytes(b"12345")
    return site


@pytest.fixture
def clamd() -> Iterator[StandIn]:
    with running() as stand_in:
        yield stand_in


def scanner(settings: Settings, address: str) -> Scanner:
    return Scanner(address)


def test_clean_files_pass_and_each_was_sent_whole(settings: Settings, folder: Path, clamd: StandIn) -> None:
    large = os.urandom(3 * CHUNK + 17)
    (folder / "large.bin").write_bytes(large)
    (folder / "none").touch()

    finding = scanner(settings, clamd.address).check(folder)

    assert finding is None
    assert clamd.streams == [b"<h1>Hello</h1>", b"12345", large, b""]


def test_a_signature_is_named_with_its_file(settings: Settings, folder: Path, clamd: StandIn) -> None:
    clamd.signature = b"234"

    finding = scanner(settings, clamd.address).check(folder)

    assert finding == Finding("b.bin", "clamav", "matches the virus signature Test.Signature-1")


def test_a_daemon_at_a_socket_of_the_file_system_is_asked(settings: Settings, folder: Path, tmp_path: Path) -> None:
    with running(str(tmp_path / "clamd.sock")) as clamd:
        clamd.signature = b"Hello"

        finding = scanner(settings, clamd.address).check(folder)

    assert finding is not None
    assert finding.file == "a.html"


def test_what_the_rules_find_is_not_sent_to_the_daemon(settings: Settings, folder: Path, clamd: StandIn) -> None:
    (folder / "z").write_bytes(elf())

    finding = scanner(settings, clamd.address).check(folder)

    assert finding is not None
    assert finding.rule == "executable-elf"
    assert clamd.streams == []


def test_without_anybody_at_the_address_nothing_passes(settings: Settings, folder: Path, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

        for address in (f"127.0.0.1:{port}", str(tmp_path / "nobody.sock")):
            with pytest.raises(ScanUnavailable, match="does not answer"):
                scanner(settings, address).check(folder)


@pytest.mark.parametrize("answer", [b"", b"stream: OK", b"INSTREAM: Can't allocate memory ERROR\0", b"\0", b"x" * 5000])
def test_an_answer_that_is_no_verdict_lets_nothing_pass(
    settings: Settings, folder: Path, clamd: StandIn, answer: bytes
) -> None:
    clamd.answer = answer

    with pytest.raises(ScanUnavailable, match="The files were refused"):
        scanner(settings, clamd.address).check(folder)


def test_a_file_that_is_too_long_for_the_daemon_does_not_pass(settings: Settings, folder: Path, clamd: StandIn) -> None:
    clamd.most = CHUNK
    (folder / "large.bin").write_bytes(bytes(100 * CHUNK))

    with pytest.raises(ScanUnavailable, match="The files were refused"):
        scanner(settings, clamd.address).check(folder)


def test_a_daemon_that_says_nothing_is_not_waited_for_long(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asked = Clamd(silent.getsockname(), timeout_s=0.05)

        with pytest.raises(ScanUnavailable, match="does not answer"):
            asked.find(folder / "a.html")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("/run/clamav/clamd.ctl", "/run/clamav/clamd.ctl"),
        ("127.0.0.1:3310", ("127.0.0.1", 3310)),
        ("clamav.internal:3310", ("clamav.internal", 3310)),
        ("[::1]:3310", ("::1", 3310)),
    ],
)
def test_an_address_is_a_socket_or_a_host_and_its_port(text: str, address: object) -> None:
    assert Clamd.at(text).address == address


@pytest.mark.parametrize("text", ["clamd", "host:", ":3310", "host:0", "host:65536", "::1:3310", "http://host:3310"])
def test_another_address_stops_the_start_and_names_the_setting(settings: Settings, text: str) -> None:
    with pytest.raises(BadSettings, match="MOORAGE_CLAMD: "):
        scanner(settings, text)
