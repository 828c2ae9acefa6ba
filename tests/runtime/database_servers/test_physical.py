"""Base backups and archived WAL: recovery, and detection of broken files."""

from __future__ import annotations

import dataclasses
import tarfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.runtime.database_servers.server_support import POSTGRESQL, Lab, Server, a_lab, find_software

from moorage.core.kit import folders
from moorage.runtime.database_servers.ports import ARCHIVE, DATA, Recovery, ServerFailed
from moorage.runtime.database_servers.postgres import physical_backups as physical


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with a_lab() as made:
        yield made


@pytest.fixture(scope="module")
def server(lab: Lab) -> Iterator[Server]:
    made = lab.start(find_software(POSTGRESQL), archives=True)
    made.ask("CREATE TABLE ships (n int)", "INSERT INTO ships SELECT generate_series(1, 1000)")
    yield made
    made.stop()


@dataclasses.dataclass
class Copy:
    file: Path
    files: int
    first: str


@pytest.fixture(scope="module")
def copy(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A physical backup of the server. Tests share it: they change only copies of it."""
    return copied(server, tmp_path_factory.mktemp("backup"))


def copied(server: Server, folder: Path) -> Copy:
    work = folder / "work"
    work.mkdir()
    if server.uid:
        folders.change_owner(work, server.uid)
    return Copy(folder / "copy", *physical.copy(server.software, server.access, work, folder / "copy"))


def recovered(server: Server, copy: Copy, pieces: list[Path], target_ms: int | None) -> Server:
    """Start a server on a base backup and WAL files; return it after recovery."""
    other = server.lab.new(server.software, recovery=Recovery(target_ms), is_open=False)
    other.admin = server.admin
    other.folder.mkdir(mode=0o700)
    physical.unpack(copy.file, other.folder)
    for piece in pieces:
        (other.folder / physical.WAL / piece.name).write_bytes(piece.read_bytes())
    other.own()
    physical.verify(server.software, other.folder / DATA)
    other.start()
    return other


def archived(server: Server) -> list[Path]:
    """Switch the WAL segment, and return all archived files."""
    physical.wait_until_archived(server.access, physical.switch_wal(server.access))
    archive = server.folder / ARCHIVE
    return [archive / name for name in physical.archived_files(archive)]


def test_a_copy_comes_back_as_it_was_when_it_was_made(server: Server, copy: Copy) -> None:
    server.ask("CREATE TABLE later (n int)")

    other = recovered(server, copy, [], None)
    contents = other.kind.count_rows(other.access, other.names)
    (is_recovering,) = other.as_platform("SELECT pg_is_in_recovery()")
    other.stop()

    assert contents["public.ships"] == 1000
    assert "public.later" not in contents
    assert not is_recovering
    assert physical.check(copy.file) == copy.files > 500


@pytest.mark.deep
def test_the_log_leads_to_the_moment_before_a_table_was_dropped(server: Server, copy: Copy) -> None:
    server.ask("CREATE TABLE cargo (n int)", "INSERT INTO cargo SELECT generate_series(1, 5000)")
    moment = server_time_ms(server)
    server.ask("DROP TABLE cargo")

    pieces = [path for path in archived(server) if physical.is_needed(path.name, copy.first)]
    other = recovered(server, copy, pieces, moment)
    contents = other.kind.count_rows(other.access, other.names)
    other.stop()

    assert contents["public.cargo"] == 5000


def server_time_ms(server: Server) -> int:
    """Return a time between all earlier and all later statements."""
    time.sleep(0.05)
    now = server.ask("SELECT clock_timestamp()")[0][0]
    time.sleep(0.05)
    assert isinstance(now, datetime)
    return int(now.astimezone(UTC).timestamp() * 1000)


def test_a_copy_that_was_cut_short_is_refused(copy: Copy, tmp_path: Path) -> None:
    broken = tmp_path / "copy"
    broken.write_bytes(copy.file.read_bytes()[: copy.file.stat().st_size // 2])
    (tmp_path / "new").mkdir()

    with pytest.raises(ServerFailed, match="broken"):
        physical.check(broken)

    with pytest.raises(ServerFailed, match="broken"):
        physical.unpack(broken, tmp_path / "new")


@pytest.mark.deep
def test_a_copy_of_which_a_file_was_changed_is_refused(server: Server, copy: Copy, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    folder.mkdir(mode=0o755)
    physical.unpack(copy.file, folder)
    changed = max((folder / DATA / "base").glob("*/[0-9]*"), key=lambda path: path.stat().st_size)
    changed.write_bytes(b"x" * changed.stat().st_size)
    if server.uid:
        folders.change_owner(folder, server.uid)

    with pytest.raises(ServerFailed, match="checksum"):
        physical.verify(server.software, folder / DATA)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("../outside", tarfile.REGTYPE), ("/outside", tarfile.REGTYPE), ("a/../../outside", tarfile.DIRTYPE),
     ("link", tarfile.SYMTYPE), ("link", tarfile.LNKTYPE), ("pipe", tarfile.FIFOTYPE)],
)  # fmt: skip
def test_a_copy_that_somebody_has_forged_writes_nothing_outside(tmp_path: Path, name: str, kind: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    with tarfile.open(tmp_path / "copy.gz", "w:gz") as tar:
        tar.addfile(member)
    (tmp_path / "new").mkdir()

    with pytest.raises(ServerFailed, match=f"{name} has no place in it"):
        physical.unpack(tmp_path / "copy.gz", tmp_path / "new")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.gz", "new"]
    assert list((tmp_path / "new" / DATA).iterdir()) == []


def test_a_server_that_is_away_cannot_be_copied(server: Server, lab: Lab, tmp_path: Path) -> None:
    other = lab.new(server.software)
    other.fill()

    with pytest.raises(ServerFailed, match="connect"):
        copied(other, tmp_path)


def test_a_piece_comes_back_as_it_was(tmp_path: Path) -> None:
    name = "000000010000000000000002"
    (tmp_path / name).write_bytes(b"log" * 5000)

    physical.compress_wal(tmp_path, name, tmp_path / "packed")
    physical.decompress_wal(tmp_path / "packed", tmp_path / "again")
    physical.drop_wal(tmp_path, name)
    physical.drop_wal(tmp_path, name)

    assert (tmp_path / "again").read_bytes() == b"log" * 5000
    assert physical.archived_files(tmp_path) == []


def test_a_broken_piece_is_refused(tmp_path: Path) -> None:
    (tmp_path / "packed").write_bytes(b"nothing of the kind")

    with pytest.raises(ServerFailed, match="broken"):
        physical.decompress_wal(tmp_path / "packed", tmp_path / "again")


def test_only_finished_pieces_are_taken_from_an_archive(tmp_path: Path) -> None:
    for name in ("000000010000000000000002", "00000002.history", "archtemp.1", ".000000010000000000000003.part"):
        (tmp_path / name).write_bytes(b"")

    assert physical.archived_files(tmp_path) == ["000000010000000000000002", "00000002.history"]
    assert physical.archived_files(tmp_path / "missing") == []


def test_a_link_in_an_archive_leads_nowhere(tmp_path: Path) -> None:
    name = "000000010000000000000002"
    (tmp_path / "secret").write_text("secret")
    (tmp_path / name).symlink_to(tmp_path / "secret")

    with pytest.raises(OSError, match="symbolic links"):
        physical.compress_wal(tmp_path, name, tmp_path / "packed")


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("000000010000000000000004", False),
        ("000000010000000000000005", True),
        ("000000020000000000000006", True),
        ("000000020000000000000004", False),
        ("000000010000000000000005.00000028.backup", True),
        ("00000002.history", True),
    ],
)
def test_a_copy_needs_the_pieces_from_its_first_on_whatever_their_timeline(name: str, needed: bool) -> None:
    assert physical.is_needed(name, "000000010000000000000005") is needed
