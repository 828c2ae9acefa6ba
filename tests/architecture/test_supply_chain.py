"""Dependencies: each is pinned with hashes, and advisories about them are reported."""

from __future__ import annotations

import importlib.util
import json
import re
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from requirements.installer.packages import UV_LOCK, Installer, ensure_uv, uv_version
from requirements.installer.pip import Pip
from requirements.installer.progress import Finished, Step
from tests.architecture.source import ROOT

from moorage.runtime.builds.toolchain import toolchain_downloads

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
ADVISORY: dict[str, Any] = {
    "id": "MOORAGE-TEST-1",
    "schema_version": "1.6.0",
    "summary": "an example",
    "affected": [
        {
            "package": {"name": "Harbor_Lib", "ecosystem": "PyPI"},
            "ranges": [
                {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "2.0"}]},
            ],
            "versions": ["1.3"],
        }
    ],
}


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "requirements" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.boundary("supply-chain", "Every Python dependency is pinned to a version and to hashes of its files.")
@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_requirement_is_pinned_with_hashes(lock: Path) -> None:
    logical = lock.read_text().replace("\\\n", " ").splitlines()
    requirements = [line for line in logical if line.strip() and not line.lstrip().startswith("#")]

    assert requirements
    assert [line for line in requirements if not re.match(r"[a-z0-9][a-z0-9._-]*(\[[a-z,]+\])?==\S+", line)] == []
    assert [line[:60] for line in requirements if "--hash=sha256:" not in line] == []


@pytest.mark.boundary("supply-chain", "Every npm dependency is pinned to a version and to a hash of its archive.")
@pytest.mark.parametrize("folder", ["console", "tests/npm", "bench/npm"])
def test_every_npm_package_is_pinned_with_its_hash(folder: str) -> None:
    packages = json.loads((ROOT / folder / "package-lock.json").read_text())["packages"]

    unpinned = [name for name, each in packages.items() if name and not each.get("integrity", "").startswith("sha512-")]

    assert len(packages) > 1
    assert unpinned == []


@pytest.mark.boundary("supply-chain", "Installers of the project refuse files whose hashes are not locked.")
def test_every_installation_of_the_setup_requires_hashes(tmp_path: Path) -> None:
    commands: list[list[str]] = []

    class Recorder(Step):
        def run(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None) -> Finished:
            commands.append(list(argv))
            return Finished(0, "")

    step = Recorder("setup")
    for uv in (tmp_path / "uv", None):
        Installer(tmp_path, Pip(), uv, {}).install(["runtime", "dev"], step)
    ensure_uv(tmp_path, Pip(), {}, step)

    assert len(commands) == 3
    assert [argv for argv in commands if "--require-hashes" not in argv] == []
    makefile = (ROOT / "Makefile").read_text()
    assert "pip install" not in makefile
    assert '"ci"' in makefile  # npm installs what its lock says, with its hashes


def test_the_setup_and_builds_use_the_same_uv() -> None:
    hashes = set(re.findall(r"--hash=sha256:(\w+)", UV_LOCK.read_text()))

    assert uv_version() == toolchain_downloads.UV.version
    assert set(toolchain_downloads.UV.digests.values()) <= hashes


@pytest.mark.boundary("supply-chain", "Known vulnerabilities are found in a local database of advisories.")
@pytest.mark.parametrize(
    ("version", "is_affected"), [("1.0", True), ("1.1.9", True), ("1.2", False), ("1.3", True), ("2.1", True)]
)
def test_an_advisory_is_matched_by_version(audit: ModuleType, version: str, *, is_affected: bool) -> None:
    advisories = {"harbor-lib": [ADVISORY]}

    assert bool(audit.affecting(advisories, "harbor.lib", version)) is is_affected
    assert audit.affecting(advisories, "another", version) == []


def test_advisories_of_a_file_are_served_to_the_audit_on_loopback(audit: ModuleType, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("MOORAGE-TEST-1.json", json.dumps(ADVISORY))
    server = audit.serve(audit.read_advisories(tmp_path / "all.zip"))

    def ask(name: str) -> Any:
        query = {"package": {"name": name, "ecosystem": "PyPI"}, "version": "1.0"}
        address = f"http://127.0.0.1:{server.server_address[1]}/v1/query"
        with urllib.request.urlopen(address, json.dumps(query).encode(), timeout=10) as reply:
            return json.load(reply)

    try:
        assert ask("harbor-lib") == {"vulns": [ADVISORY]}
        assert ask("other") == {}
    finally:
        server.shutdown()


def test_a_report_names_vulnerabilities_and_counts_what_was_not_checked(
    audit: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = {"name": "harbor", "version": "1.0", "vulns": [{"id": "X-1", "fix_versions": ["1.2"]}]}
    skipped = {"name": "other", "skip_reason": "no network"}

    assert audit.report([bad, skipped]) == 1
    assert audit.report([skipped]) == 0
    said = capsys.readouterr().out
    assert "harbor 1.0: X-1 (fixed in: 1.2)" in said
    assert "0 packages checked, 0 with known vulnerabilities, 1 not checked" in said
