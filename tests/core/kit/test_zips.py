"""Archives from users: written files, and every kind of archive that is refused without a trace."""

import os
import stat
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.kit.zip_bytes import (
    DEVICE,
    FIFO,
    FOLDER,
    LINK,
    MB,
    SOCKET,
    Piece,
    Unseekable,
    archive,
    deflate,
    end_record,
    end_record64,
    quoting_bomb,
    shared_record_bomb,
    zip64_archive,
)

from moorage.core.kit.zips import BadArchive, Caps, Entry, extract, inspect

pytestmark = pytest.mark.boundary(
    "tenant-to-tenant", "An uploaded archive writes nothing outside of its own folder and beyond its declared size."
)

CAPS = Caps(packed_bytes=10 * MB, unpacked_bytes=20 * MB)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "upload.zip"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "unpacked"


def write_zip(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path, "w", method) as packed:
        for name, data in files.items():
            packed.writestr(name, data)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(entries: list[Entry]) -> list[str]:
    return [entry.name for entry in entries]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_archive_is_unpacked_as_it_was_packed(source: Path, target: Path, method: int) -> None:
    files = {"index.html": b"<h1>hi</h1>", "assets/app.js": os.urandom(700_000), "empty": b"", "zeros": b"\0" * 3 * MB}
    write_zip(source, files, method)

    entries = extract(source, target, CAPS)

    assert contents(target) == files
    assert names(entries) == list(files)
    assert [entry.size for entry in entries] == [len(data) for data in files.values()]


def test_inspecting_lists_what_extracting_writes_and_writes_nothing(source: Path, target: Path) -> None:
    source.write_bytes(archive(Piece(b"bin/", b"", mode=0o040755), Piece(b"bin/run", mode=0o100755), Piece(b"note")))

    listed = inspect(source, CAPS)

    assert [(entry.name, entry.size, entry.is_folder, entry.executable) for entry in listed] == [
        ("bin", 0, True, False),
        ("bin/run", 5, False, True),
        ("note", 5, False, False),
    ]
    assert not target.exists()
    assert extract(source, target, CAPS) == listed


def test_only_the_owners_execute_bit_is_kept_whatever_the_umask(source: Path, target: Path) -> None:
    modes = {"plain": 0o100644, "run": 0o100700, "setuid": 0o104755, "others": 0o100677, "none": 0o100000, "dos": 0}
    source.write_bytes(archive(*(Piece(f"in/{name}".encode(), mode=mode) for name, mode in modes.items())))

    before = os.umask(0o077)
    try:
        extract(source, target, CAPS)
    finally:
        os.umask(before)

    written = {path.name: stat.S_IMODE(path.stat().st_mode) for path in target.rglob("*")}
    assert written == {
        "in": 0o755,
        "plain": 0o644,
        "run": 0o755,
        "setuid": 0o755,
        "others": 0o644,
        "none": 0o644,
        "dos": 0o644,
    }
    assert stat.S_IMODE(target.stat().st_mode) == 0o755


def test_names_in_any_script_arrive_whole(source: Path, target: Path) -> None:
    files = {
        "übersicht/žluťoučký.txt": b"1",
        "日本語.html": b"2",
        "👩‍🚀.svg": b"3",
        "café.md": b"4",
        "a b'c\"$(d).txt": b"5",
    }
    write_zip(source, files)

    extract(source, target, CAPS)

    assert contents(target) == files


@pytest.mark.parametrize(
    ("name", "expected"), [("größe.txt".encode(), "größe.txt"), ("größe.txt".encode("cp437"), "größe.txt")]
)
def test_a_name_without_the_utf8_mark_is_read_as_utf8_or_as_the_old_code_page(
    source: Path, name: bytes, expected: str
) -> None:
    source.write_bytes(archive(Piece(name)))

    assert names(inspect(source, CAPS)) == [expected]


def test_an_archive_written_as_a_stream_with_data_descriptors_works(source: Path, target: Path) -> None:
    sink = Unseekable()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as packed:  # type: ignore[call-overload]
        packed.writestr("a.txt", b"first" * 1000)
        packed.writestr("b.txt", b"second")
        with packed.open("c.txt", "w", force_zip64=True) as out:
            out.write(b"third")
    source.write_bytes(sink.data)

    extract(source, target, CAPS)

    assert sink.data.count(b"PK\7\x08") == 3
    assert contents(target) == {"a.txt": b"first" * 1000, "b.txt": b"second", "c.txt": b"third"}


def test_an_archive_that_uses_zip64_throughout_works(source: Path, target: Path) -> None:
    source.write_bytes(zip64_archive())

    extract(source, target, CAPS)

    assert contents(target) == {"a.txt": b"long numbers"}


def test_an_archive_with_comments_works_even_if_one_looks_like_the_end_of_an_archive(source: Path) -> None:
    packed = archive(Piece(b"a.txt", comment=b"about a"))
    comment = b"PK\5\6 is how an archive ends"
    source.write_bytes(packed[:-2] + struct.pack("<H", len(comment)) + comment)

    assert names(inspect(source, CAPS)) == ["a.txt"]


def test_an_empty_archive_has_no_entries_and_leaves_an_empty_folder(source: Path, target: Path) -> None:
    write_zip(source, {})

    entries = extract(source, target, CAPS)

    assert entries == []
    assert list(target.iterdir()) == []


def test_a_single_top_folder_is_stripped_on_request_with_what_macos_adds_left_out(source: Path, target: Path) -> None:
    litter = {"__MACOSX/": b"", "__MACOSX/site/._index.html": b"x", ".DS_Store": b"x", "site/.DS_Store": b"x"}
    write_zip(source, {"site/": b"", "site/index.html": b"hi", "site/css/": b"", "site/css/a.css": b"a", **litter})

    entries = extract(source, target, CAPS, strip_top=True)

    assert names(entries) == ["index.html", "css", "css/a.css"]
    assert contents(target) == {"index.html": b"hi", "css/a.css": b"a"}


def test_what_macos_adds_is_left_out_without_stripping_too(source: Path, target: Path) -> None:
    write_zip(source, {"a/b": b"1", "a/.DS_Store": b"x", "__MACOSX/a/._b": b"x"})

    extract(source, target, CAPS)

    assert contents(target) == {"a/b": b"1"}


@pytest.mark.parametrize(
    "files",
    [
        {"a/x": b"1", "b/y": b"2"},
        {"a/x": b"1", "y": b"2"},
        {"only": b"1"},
        {"a/x": b"1", "A/y": b"2"},
    ],
    ids=["two folders", "a file beside the folder", "one file", "two folders that differ by case"],
)
def test_nothing_is_stripped_where_not_everything_is_in_one_folder(
    source: Path, target: Path, files: dict[str, bytes]
) -> None:
    write_zip(source, files)

    extract(source, target, CAPS, strip_top=True)

    assert contents(target) == files


def test_only_one_level_is_stripped(source: Path, target: Path) -> None:
    write_zip(source, {"a/b/c": b"1"})

    extract(source, target, CAPS, strip_top=True)

    assert contents(target) == {"b/c": b"1"}


def test_an_archive_at_every_limit_is_accepted(source: Path) -> None:
    write_zip(source, {"a/b/c": b"12345", "d": b"67890"})
    limits = Caps(packed_bytes=source.stat().st_size, unpacked_bytes=10, entries=2, path_chars=5, depth=3)

    assert names(inspect(source, limits)) == ["a/b/c", "d"]


@pytest.mark.parametrize(
    ("caps", "words"),
    [
        (Caps(packed_bytes=100, unpacked_bytes=MB), "at most 100"),
        (Caps(packed_bytes=MB, unpacked_bytes=9), "more than 9 bytes, at entry 'd'"),
        (Caps(packed_bytes=MB, unpacked_bytes=MB, entries=1), "2 entries; at most 1"),
        (Caps(packed_bytes=MB, unpacked_bytes=MB, path_chars=4), "'a/b/c' has a path of more than 4"),
        (Caps(packed_bytes=MB, unpacked_bytes=MB, depth=2), "'a/b/c' is more than 2 folders deep"),
    ],
)
def test_an_archive_over_one_limit_is_refused(source: Path, target: Path, caps: Caps, words: str) -> None:
    write_zip(source, {"a/b/c": b"12345", "d": b"67890"})

    with pytest.raises(BadArchive, match=words):
        extract(source, target, caps)

    assert not target.exists()


GOOD = Piece(b"good.txt")
REFUSED_BY_DIRECTORY = {
    "an empty file": (b"", "not a ZIP"),
    "another kind of file": (b"\x1f\x8b\x08" + bytes(500), "not a ZIP"),
    "cut at its end": (archive(GOOD)[:-1], "not a ZIP"),
    "cut at its start": (archive(GOOD)[1:], "directory is not where"),
    "bytes after its end": (archive(GOOD) + b"x", "not a ZIP"),
    "a part of several": (archive(GOOD, disk=1), "one part of several"),
    "a directory elsewhere": (archive(GOOD, shift=1), "directory is not where"),
    "fewer entries than counted": (archive(GOOD, count=2), "fewer entries"),
    "more entries than counted": (archive(GOOD, Piece(b"more"), count=1), "another length"),
    "millions of entries": (archive(GOOD, count=65_535), "65535 entries"),
    "a link": (archive(Piece(b"good"), Piece(b"bad", b"/etc/passwd", mode=LINK)), "'bad' is a link"),
    "a pipe": (archive(Piece(b"bad", b"", mode=FIFO)), "'bad' is a link or another special file"),
    "a device": (archive(Piece(b"bad", b"", mode=DEVICE)), "'bad' is a link or another special file"),
    "a socket": (archive(Piece(b"bad", b"", mode=SOCKET)), "'bad' is a link or another special file"),
    "a folder named as a file": (archive(Piece(b"bad", b"", mode=FOLDER)), "'bad' is a link or another special file"),
    "a link named as a folder": (archive(Piece(b"bad/", b"", mode=LINK)), "'bad/' is a link"),
    "a folder with data": (archive(Piece(b"bad/", b"data", mode=FOLDER)), "'bad/' is a folder with data"),
    "an absolute path": (archive(Piece(b"/etc/passwd")), "'/etc/passwd' has an absolute path"),
    "a drive letter": (archive(Piece(b"C:/x")), "'C:/x' has an absolute path"),
    "a drive letter without a slash": (archive(Piece(b"c:x")), "'c:x' has an absolute path"),
    "a backslash": (archive(Piece(b"a\\..\\b")), "has a backslash"),
    "a parent": (archive(Piece(b"../x")), r"'\.\./x' leaves the folder"),
    "a parent further in": (archive(Piece(b"a/../../x")), "leaves the folder"),
    "a parent at the end": (archive(Piece(b"a/..")), "leaves the folder"),
    "a parent folder": (archive(Piece(b"../", b"", mode=FOLDER)), "leaves the folder"),
    "no name": (archive(Piece(b"")), "has an empty part"),
    "only a slash": (archive(Piece(b"/", b"")), "has an empty part"),
    "an empty part": (archive(Piece(b"a//b")), "has an empty part"),
    "a NUL": (archive(Piece(b"a.txt\0.exe")), "has a control character"),
    "a line break": (archive(Piece(b"a\nb")), "has a control character"),
    "an escape": (archive(Piece(b"a\x1b[2J")), "has a control character"),
    "a C1 control": (archive(Piece("a\u0085b".encode())), "has a control character"),
    "a line separator": (archive(Piece("a\u2028b".encode())), "has a control character"),
    "bad UTF-8": (archive(Piece(b"a\xff", flags=0x800)), "not valid UTF-8"),
    "overlong UTF-8 for a dot": (archive(Piece(b"\xc0\xae\xc0\xae/x", flags=0x800)), "not valid UTF-8"),
    "a name too long for a disk": (archive(Piece(b"n" * 256)), "more than 255 bytes"),
    "a name too long for a disk in bytes": (archive(Piece("é".encode() * 128)), "more than 255 bytes"),
    "a path too long": (archive(Piece(b"/".join([b"p" * 99] * 6))), "more than 512 characters"),
    "a path far too long": (archive(Piece(b"p" * 60_000)), "more than 512 characters"),
    "too deep": (archive(Piece(b"/".join([b"d"] * 33))), "more than 32 folders deep"),
    "the same file twice": (archive(GOOD, GOOD), "'good.txt' has the same name"),
    "files that differ by case": (archive(GOOD, Piece(b"GOOD.txt")), "'GOOD.txt' has the same name"),
    "files that fold to the same": (
        archive(Piece("straße".encode()), Piece(b"STRASSE")),
        "'STRASSE' has the same name",
    ),
    "files that differ by normal form": (
        archive(Piece("caf\u00e9".encode()), Piece("cafe\u0301".encode())),
        "has the same name",
    ),
    "a file, then a folder": (archive(Piece(b"a"), Piece(b"A/", b"", mode=FOLDER)), "'A' has the same name"),
    "a folder, then a file": (archive(Piece(b"a/", b"", mode=FOLDER), Piece(b"A")), "'A' has the same name"),
    "a file used as a folder": (archive(Piece(b"a"), Piece(b"a/b")), "'a/b' uses a file as a folder"),
    "a file used as a folder above": (archive(Piece(b"a/B"), Piece(b"a/b/c/d")), "'a/b/c/d' uses a file as a folder"),
    "a file in place of a folder in use": (archive(Piece(b"a/b"), Piece(b"a")), "'a' has the same name"),
    "encrypted": (archive(Piece(b"bad", flags=0x1)), "'bad' is encrypted"),
    "strongly encrypted": (archive(Piece(b"bad", flags=0x41)), "'bad' is encrypted"),
    "bzip2": (archive(Piece(b"bad", method=12)), r"'bad' is compressed .* \(method 12\)"),
    "deflate64": (archive(Piece(b"bad", method=9)), r"\(method 9\)"),
    "patched data": (archive(Piece(b"bad", flags=0x20)), "'bad' is compressed"),
    "two sizes for stored data": (archive(Piece(b"bad", size=4)), "'bad' declares two different sizes"),
    "another name at the data": (archive(Piece(b"shown", local_name=b"other")), "'shown' has another name .* 'other'"),
    "another method at the data": (archive(Piece(b"bad", local_method=8)), "'bad' differs between"),
    "an offset to nowhere": (archive(Piece(b"bad", offset=5)), "'bad' is not where"),
    "an offset past the end": (archive(Piece(b"bad", offset=10_000)), "'bad' is not where"),
    "an offset past all numbers": (zip64_archive(2**64 - 1), "'a.txt' is not where"),
    "data that runs into the directory": (archive(Piece(b"bad", size=6, packed_size=6)), "'bad' is cut short"),
    "a declared size over the limit": (archive(Piece(b"bad", method=8, size=21 * MB)), "more than 20971520 .* 'bad'"),
    "many entries on one record": (shared_record_bomb(15), "'bomb1' overlaps"),
    "entries that quote one another": (quoting_bomb(15), "'00000002' overlaps"),
    "ZIP64 numbers cut off": (
        archive(Piece(b"bad", size=0xFFFFFFFF, extra=struct.pack("<2HL", 1, 4, 5))),
        "damaged at entry 'bad'",
    ),
    "ZIP64 with another story": (
        zip64_archive()[:-14] + struct.pack("<2H2LH", 7, 7, 0xFFFFFFFF, 0xFFFFFFFF, 0),
        "two directories differ",
    ),
    "a ZIP64 locator to nowhere": (
        archive(GOOD)[:-22] + struct.pack("<4sLQL", b"PK\6\7", 0, 2**64 - 1, 1) + archive(GOOD)[-22:],
        "ZIP64 directory is not where",
    ),
}


@pytest.mark.parametrize(("packed", "words"), REFUSED_BY_DIRECTORY.values(), ids=REFUSED_BY_DIRECTORY)
def test_an_archive_is_refused_by_its_directory_and_leaves_no_trace(
    source: Path, target: Path, packed: bytes, words: str
) -> None:
    source.write_bytes(packed)

    with pytest.raises(BadArchive, match=words):
        inspect(source, CAPS)
    with pytest.raises(BadArchive, match=words):
        extract(source, target, CAPS)

    assert not target.exists()


REFUSED_BY_DATA = {
    "a wrong checksum": (Piece(b"bad", crc=1), "'bad' is damaged: its size or checksum"),
    "a wrong checksum, deflated": (
        Piece(b"bad", b"x" * 999, method=8, crc=1),
        "'bad' is damaged: its size or checksum",
    ),
    "less data than declared": (Piece(b"bad", method=8, size=6), "'bad' is damaged: its size or checksum"),
    "more data than declared": (Piece(b"bad", method=8, size=4), "'bad' unpacks to more than the 4 bytes"),
    "a bomb that declares one byte": (Piece(b"bad", b"\0" * 5 * MB, method=8, size=1), "'bad' unpacks to more than"),
    "a stream cut short": (Piece(b"bad", b"x" * 999, method=8, packed=deflate(b"x" * 999)[:-2]), "'bad' is cut short"),
    "no stream at all": (Piece(b"bad", method=8, packed=b""), "'bad' is cut short"),
    "a stream of nonsense": (Piece(b"bad", method=8, packed=b"\xff" * 20), "'bad' is damaged: it cannot be unpacked"),
    "bytes behind the stream": (Piece(b"bad", method=8, packed=deflate(b"hello") + b"x"), "'bad' .* more data than"),
}


@pytest.mark.parametrize(("piece", "words"), REFUSED_BY_DATA.values(), ids=REFUSED_BY_DATA)
@pytest.mark.parametrize("exists", [False, True], ids=["absent target", "empty target"])
def test_an_entry_with_bad_data_is_refused_and_what_was_written_before_it_is_removed(
    source: Path, target: Path, piece: Piece, words: str, exists: bool
) -> None:
    source.write_bytes(archive(Piece(b"fine.txt"), Piece(b"folder/fine.txt"), piece))
    if exists:
        target.mkdir()

    with pytest.raises(BadArchive, match=words):
        extract(source, target, CAPS)

    assert target.exists() == exists
    assert sorted(path.name for path in source.parent.rglob("*") if path != target) == ["upload.zip"]


def test_an_honest_bomb_is_refused_before_anything_is_unpacked(source: Path, target: Path) -> None:
    with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        with packed.open("zeros", "w") as out:
            for _ in range(50):
                out.write(b"\0" * MB)
    assert source.stat().st_size < MB

    with pytest.raises(BadArchive, match="more than 20971520 bytes, at entry 'zeros'"):
        extract(source, target, CAPS)

    assert not target.exists()


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.deep
@pytest.mark.usefixtures("traced")
def test_a_directory_of_a_hundred_thousand_entries_is_not_read_into_memory(source: Path) -> None:
    directory = b"".join(Piece(b"%d" % number, b"").central(0) for number in range(100_000))
    for end in (end_record64(directory, 0, 100_000), end_record(directory, 0, 1)):
        source.write_bytes(directory + end)

        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        with pytest.raises(BadArchive, match=r"100000 entries|another length"):
            inspect(source, CAPS)
        _, peak = tracemalloc.get_traced_memory()

        assert peak - before < MB


@pytest.mark.usefixtures("traced")
def test_unpacking_a_large_file_takes_little_memory(source: Path, target: Path) -> None:
    write_zip(source, {"zeros": b"\0" * 20 * MB})

    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    extract(source, target, CAPS)
    _, peak = tracemalloc.get_traced_memory()

    assert (target / "zeros").stat().st_size == 20 * MB
    assert peak - before < 4 * MB


def test_a_target_that_is_not_empty_is_refused_and_left_as_it_is(source: Path, target: Path) -> None:
    write_zip(source, {"a": b"new"})
    target.mkdir()
    (target / "a").write_bytes(b"old")

    with pytest.raises(FileExistsError, match="not empty"):
        extract(source, target, CAPS)

    assert contents(target) == {"a": b"old"}


def test_a_target_that_is_a_link_is_refused(source: Path, target: Path, tmp_path: Path) -> None:
    write_zip(source, {"a": b"new"})
    (tmp_path / "elsewhere").mkdir()
    target.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(FileExistsError, match="it is a link"):
        extract(source, target, CAPS)

    assert list((tmp_path / "elsewhere").iterdir()) == []


@given(st.binary(max_size=40), st.integers(0, 400), st.integers(1, 20))
@settings(deadline=None)
def test_whatever_is_done_to_its_bytes_an_archive_is_unpacked_or_refused(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, position: int, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("noise")
    whole = archive(Piece(b"a.txt", b"a" * 99, method=8), Piece(b"b/c.txt"), Piece(b"d/", b"", mode=FOLDER))
    (folder / "upload.zip").write_bytes(whole[:position] + noise + whole[position + cut :])

    try:
        extract(folder / "upload.zip", folder / "unpacked", CAPS)
    except BadArchive:
        refused = True
    else:
        refused = False

    assert refused != (folder / "unpacked").exists()
