"""Scans in low-priority processes: findings, failures, and an event loop that goes on."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.runtime.scan.samples import elf

from moorage.runtime.sandbox.heavy import HeavyWork
from moorage.runtime.scan.folders import FolderScans
from moorage.runtime.scan.service import Finding, Purpose, Scanner, ScanUnavailable

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", autouse=True)
def forked_heavy_processes() -> None:
    """Start real processes."""


@pytest.fixture
async def heavy() -> AsyncIterator[HeavyWork]:
    made = HeavyWork()
    yield made
    made.close()


async def test_a_finding_and_a_clean_folder_come_back(heavy: HeavyWork, tmp_path: Path) -> None:
    scans = FolderScans("", heavy)
    (tmp_path / "index.html").write_text("<h1>hello</h1>")

    clean = await scans.check(1, tmp_path, Purpose.SITE)
    (tmp_path / "tool").write_bytes(elf())
    bad = await scans.check(1, tmp_path, Purpose.SITE)
    source = await scans.check(1, tmp_path, Purpose.SOURCE)

    assert clean is None
    assert bad == Finding("tool", "executable-elf", "is a Linux program")
    assert source is None


@pytest.mark.boundary("tenant-to-tenant", "The scan of one organization's files does not stop the control process.")
async def test_no_file_is_matched_in_this_process(
    heavy: HeavyWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(*_: object) -> None:
        raise AssertionError("matching holds the interpreter lock, so it must not run beside the event loop")

    monkeypatch.setattr(Scanner, "check", check)
    (tmp_path / "tool").write_bytes(elf())

    assert await FolderScans("", heavy).check(1, tmp_path, Purpose.UPLOAD) is not None


async def test_a_name_that_is_not_utf_8_is_reported(heavy: HeavyWork, tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"to\xffol")).write_bytes(elf())

    finding = await FolderScans("", heavy).check(1, tmp_path, Purpose.SITE)

    assert finding is not None
    assert finding.file == "to?ol"


async def test_a_daemon_that_is_away_makes_the_scan_unavailable(heavy: HeavyWork, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<h1>hello</h1>")

    with pytest.raises(ScanUnavailable):
        await FolderScans(str(tmp_path / "no-such.sock"), heavy).check(1, tmp_path, Purpose.SITE)
