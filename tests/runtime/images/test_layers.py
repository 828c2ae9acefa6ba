"""Unpacking of layers: effects on lower layers, and forbidden entries."""

from __future__ import annotations

import gzip
import io
import os
import stat
import subprocess
import tarfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.images.registry_support import Entry, folder, hard_link, layer, symlink, tar

from moorage.runtime.images.layers import Unpacker
from moorage.runtime.images.packed.compression import open_zstd
from moorage.runtime.images.packed.headers import BadLayer

MB = 2**20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of an image, beside a file that no layer may reach."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("untouched")
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def apply(root: Path, *layers: bytes, unpacker: Unpacker | None = None) -> Unpacker:
    unpacker = unpacker or Unpacker(root)
    for number, body in enumerate(layers):
        path = root.parent / f"layer-{number}"
        path.write_bytes(body)
        unpacker.apply(path)
    return unpacker


def shown(root: Path) -> dict[str, str]:
    """Contents of an image: file contents, link targets, and "/" for folders."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        else:
            found[name] = "/" if path.is_dir() else path.read_text()
    return found


def is_untouched(root: Path) -> bool:
    outside = root.parent / "outside"
    return os.listdir(outside) == ["secret"] and (outside / "secret").read_text() == "untouched"


def zstd(body: bytes) -> bytes:
    return subprocess.run(["zstd", "-c", "-q"], input=body, capture_output=True, check=True).stdout


def test_files_folders_and_links_of_every_packing_are_unpacked(root: Path) -> None:
    plain = tar(folder("etc"), Entry("etc/name", b"moorage"))
    packed = gzip.compress(tar(symlink("link", "/etc/name"), hard_link("same", "etc/name")))
    other = zstd(tar(Entry("deep/er/file", b"x")))

    apply(root, plain, packed, other)

    assert shown(root) == {
        "etc": "/", "etc/name": "moorage", "link": "-> /etc/name", "same": "moorage",
        "deep": "/", "deep/er": "/", "deep/er/file": "x",
    }  # fmt: skip
    assert (root / "same").stat().st_ino == (root / "etc/name").stat().st_ino


def test_a_layer_takes_away_what_it_hides_and_replaces_what_it_brings_anew(root: Path) -> None:
    lower = layer(Entry("a/old", b"1"), Entry("a/kept", b"2"), Entry("b/x/y", b"3"), Entry("c", b"4"), folder("d"))
    upper = layer(Entry("a/.wh.old"), Entry(".wh.b"), folder("c"), Entry("c/now", b"5"), Entry("d", b"6"))

    apply(root, lower, upper)

    assert shown(root) == {"a": "/", "a/kept": "2", "c": "/", "c/now": "5", "d": "6"}


@pytest.mark.parametrize("is_first", [True, False])
def test_an_opaque_folder_shows_only_its_own_layer_wherever_the_mark_stands(root: Path, is_first: bool) -> None:
    lower = layer(Entry("a/old", b"1"), Entry("a/sub/old", b"2"), Entry("a/gone/x", b"3"), Entry("b", b"4"))
    own = (Entry("a/new", b"5"), Entry("a/sub/new", b"6"))
    mark = Entry("a/.wh..wh..opq")

    apply(root, lower, layer(*((mark, *own) if is_first else (*own, mark))))

    assert shown(root) == {"a": "/", "a/new": "5", "a/sub": "/", "a/sub/new": "6", "b": "4"}


def test_hiding_what_is_not_there_does_nothing(root: Path) -> None:
    apply(
        root, layer(Entry("file", b"1")), layer(Entry("no/where/.wh.x"), Entry(".wh.other"), Entry("no/.wh..wh..opq"))
    )

    assert shown(root) == {"file": "1"}


def test_a_folder_over_a_link_of_a_lower_layer_takes_its_place(root: Path) -> None:
    lower = layer(folder("usr/lib"), symlink("lib", "usr/lib"), symlink("out", "../outside"))

    apply(root, lower, layer(Entry("lib/file", b"1"), Entry("out/secret", b"stolen"), folder("out")))

    assert shown(root) == {"usr": "/", "usr/lib": "/", "lib": "/", "lib/file": "1", "out": "/", "out/secret": "stolen"}
    assert is_untouched(root)


@pytest.mark.parametrize(
    "entries",
    [
        (Entry("../outside/secret", b"stolen"),),
        (Entry("a/../../outside/secret", b"stolen"),),
        (folder("../outside/more"),),
        (symlink("out", "../outside"), Entry("out/secret", b"stolen")),
        (symlink("out", "../outside"), folder("out")),
        (symlink("out", "../outside"), Entry("out/more/file", b"x")),
        (symlink("out", "../outside"), symlink("out/secret", "x")),
        (hard_link("mine", "../outside/secret"),),
        (hard_link("mine", "/../outside/secret"),),
        (symlink("out", "../outside"), hard_link("mine", "out/secret")),
        (hard_link("mine", "not/there"),),
        (hard_link("mine", ""),),
        (folder("a"), hard_link("b", "a")),
        (Entry(".wh..", b""),),
        (Entry(".wh...", b""),),
        (Entry("a/.wh.", b""),),
        (Entry("x", pax={"path": "a\0b"}),),
        (Entry("a/" * 200 + "b", b""),),
        (Entry("n" * 300, b""),),
        (Entry("file", b""), Entry("file/below", b"")),
    ],
    ids=lambda entries: entries[-1].name[:30] + entries[-1].target,
)
def test_what_leads_out_of_the_image_or_nowhere_is_refused(root: Path, entries: tuple[Entry, ...]) -> None:
    with pytest.raises(BadLayer):
        apply(root, layer(folder("a"), *entries))

    assert is_untouched(root)


@pytest.mark.parametrize("name", ["/outside/secret", "//outside/secret", "./outside/./secret"])
def test_an_absolute_name_counts_from_the_image(root: Path, name: str) -> None:
    apply(root, layer(Entry(name, b"mine"), hard_link("same", name)))

    assert shown(root) == {"outside": "/", "outside/secret": "mine", "same": "mine"}
    assert is_untouched(root)


def test_nothing_is_written_or_removed_through_links_of_lower_layers(root: Path) -> None:
    lower = layer(symlink("file", "../outside/secret"), symlink("out", "../outside"))
    upper = layer(Entry("file", b"mine"), Entry("out/.wh.secret"), Entry("out/.wh..wh..opq"))

    apply(root, lower, upper)

    assert shown(root) == {"file": "mine", "out": "-> ../outside"}
    assert is_untouched(root)


def test_a_file_that_is_replaced_leaves_its_other_name_alone(root: Path) -> None:
    apply(root, layer(Entry("one", b"1"), hard_link("two", "one")), layer(Entry("one", b"new")))

    assert shown(root) == {"one": "new", "two": "1"}


def test_devices_and_pipes_are_left_out_and_counted(root: Path) -> None:
    kinds = (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)

    unpacker = apply(root, layer(*(Entry(f"dev-{kind!r}", kind=kind) for kind in kinds), Entry("file", b"1")))

    assert shown(root) == {"file": "1"}
    assert unpacker.skipped == 3


def test_modes_are_kept_but_none_gives_rights(root: Path) -> None:
    files = (
        Entry("su", b"1", mode=0o6700),
        Entry("open", b"2", mode=0o666),
        Entry("closed", b"3", mode=0o000),
        folder("tmp", 0o1777),
        folder("shut", 0o000),
        Entry("shut/in", b"4"),
    )
    before = os.umask(0o077)
    try:
        apply(root, layer(*files))
    finally:
        os.umask(before)

    modes = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in root.rglob("*")}
    shut = "0o0" if os.getuid() == 0 else "0o700"  # An ordinary user must be able to fill its folders.
    assert modes == {"su": "0o700", "open": "0o666", "tmp": "0o1777", "closed": "0o0", "shut": shut, "in": "0o644"}
    assert {path.stat().st_uid for path in root.rglob("*")} == {os.getuid()}


def test_owners_are_kept_and_those_without_a_place_are_nobody(root: Path) -> None:
    entries = (
        Entry("mail", b"", uid=8, gid=12, mode=0o660),
        replace(folder("home", 0o2750), uid=1000, gid=1001),
        replace(symlink("home/link", "/etc/shadow"), uid=1000, gid=1001),
        Entry("far", b"", uid=70_000, gid=2**31),
    )

    apply(root, layer(*entries))

    owners = {path.name: (path.lstat().st_uid, path.lstat().st_gid) for path in root.rglob("*")}
    own = (os.getuid(), os.getgid())  # of all files, where this is not root
    expected = {"mail": (8, 12), "home": (1000, 1001), "link": (1000, 1001), "far": (65534, 65534)}
    assert owners == (expected if os.getuid() == 0 else dict.fromkeys(expected, own))
    assert stat.S_IMODE((root / "home").stat().st_mode) & 0o777 == 0o750


def test_without_owners_all_files_are_of_this_user(root: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(layer(Entry("mail", b"", uid=8, gid=12), replace(folder("home", 0o500), uid=1000)))

    Unpacker(root, keeps_owners=False).apply(packed)

    assert {path.stat().st_uid for path in root.rglob("*")} == {os.getuid()}
    assert stat.S_IMODE((root / "home").stat().st_mode) == 0o700


def test_files_keep_their_time_and_an_absurd_one_is_cut(root: Path) -> None:
    apply(root, layer(Entry("a", mtime=1_600_000_000), Entry("b", pax={"mtime": "9" * 30})))

    assert (root / "a").stat().st_mtime == 1_600_000_000
    assert (root / "b").stat().st_mtime == 2**33


def test_paths_that_are_longer_than_the_system_takes_at_once_are_unpacked(root: Path) -> None:
    parts = ["d" * 200] * 40

    apply(root, layer(Entry("/".join([*parts, "file"]), b"1")))

    inner = os.open(root, os.O_RDONLY)
    for part in parts:
        outer, inner = inner, os.open(part, os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    assert os.listdir(inner) == ["file"]
    os.close(inner)


def test_a_bomb_stops_at_the_limit(root: Path) -> None:
    bomb = layer(Entry("zeros", bytes(20 * MB)))

    with pytest.raises(BadLayer, match="the image unpacks to more than 4 MB"):
        apply(root, bomb, unpacker=Unpacker(root, most_bytes=4 * MB))

    assert len(bomb) < MB
    assert sum(path.stat().st_size for path in root.rglob("*")) <= 4 * MB


def test_the_limit_counts_all_layers_together(root: Path) -> None:
    parts = [layer(Entry("zeros", bytes([number]) * 2 * MB)) for number in range(3)]

    with pytest.raises(BadLayer, match="more than 5 MB"):
        apply(root, *parts, unpacker=Unpacker(root, most_bytes=5 * MB))

    assert (root / "zeros").exists()


def test_a_file_with_endless_holes_is_refused(root: Path) -> None:
    holes = {
        "GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(2**40), "GNU.sparse.map": "0,1",
    }  # fmt: skip

    with pytest.raises(BadLayer, match="unpacks to more than"):
        apply(root, layer(Entry("holes", b"x", pax=holes)))

    assert shown(root) == {}


def test_too_many_files_are_refused(root: Path) -> None:
    with pytest.raises(BadLayer, match="more than 3 files"):
        apply(root, layer(*(Entry(f"f{number}") for number in range(5))), unpacker=Unpacker(root, most_entries=3))

    assert len(shown(root)) == 3


def old_map(blocks: int) -> bytes:
    """A sparse file of the old GNU format whose map goes on for many blocks."""
    header = bytearray(Entry("holes", kind=tarfile.GNUTYPE_SPARSE).header().tobuf(tarfile.GNU_FORMAT))
    header[482] = 1  # The map goes on.
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    return bytes(header) + (b"00000000001\0" * 42 + b"\1" + bytes(7)) * blocks


def new_map(entries: int) -> bytes:
    """A sparse file of the format 1.0, whose map is before its content."""
    pax = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "holes", "GNU.sparse.realsize": "1"}
    return tar(Entry("holes", b"%d\n" % entries + b"1\n" * (2 * entries), pax=pax))


def long_header(kind: bytes, text: str) -> bytes:
    header: bytes = tarfile.TarInfo._create_pax_generic_header(  # type: ignore[attr-defined]
        {text: "x" * 60_000}, kind, "utf-8"
    )
    return header


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (old_map(4096), "too many parts"),
        (new_map(500_000), "too many parts"),
        (
            b"".join(long_header(tarfile.XGLTYPE, f"k{number}") + tar(Entry("f"))[:512] for number in range(20)),
            "too many",
        ),
        (long_header(tarfile.XHDTYPE, "k") * 1200, "cannot be read"),
    ],
)
def test_headers_that_would_fill_the_memory_are_refused(root: Path, body: bytes, why: str) -> None:
    with pytest.raises(BadLayer, match=why):
        apply(root, gzip.compress(body + bytes(1024), mtime=0))


def test_a_sparse_file_with_few_parts_is_unpacked(root: Path) -> None:
    pax = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "holes", "GNU.sparse.realsize": "6"}

    apply(root, layer(Entry("holes", b"1\n4\n2\n".ljust(512, b"\0") + b"ab", pax=pax), Entry("next", b"1")))

    assert shown(root) == {"holes": "\0\0\0\0ab", "next": "1"}


def broken_header(size: bytes, kind: bytes) -> bytes:
    """A hand-made header with an invalid size."""
    header = bytearray(Entry("file", kind=kind).header().tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = size
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    return bytes(header)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"this is no archive at all", "cannot be read"),
        (gzip.compress(b"neither is this", mtime=0), "cannot be read"),
        (layer(Entry("file", os.urandom(MB)))[: MB // 2], "cannot be read"),
        (tar(Entry("file", bytes(MB)))[: MB // 2], "cannot be read"),
        (zstd(tar(Entry("file", os.urandom(MB))))[: MB // 2], "cannot be read"),
        (broken_header(b"\xff" * 12, tarfile.REGTYPE) + bytes(1024), "impossible size"),
        (broken_header(b"77777777777\0", tarfile.XHDTYPE) + bytes(1024), "impossible size"),
        (broken_header(b"77777777777\0", tarfile.GNUTYPE_LONGNAME) + bytes(1024), "impossible size"),
        (tar(Entry("file", pax={"size": str(10**30)})), "unpacks to more than"),
        (tar(Entry("file", pax={"size": "-5000"})), "impossible size"),
    ],
)  # fmt: skip
def test_an_archive_that_is_broken_is_refused(root: Path, body: bytes, why: str) -> None:
    with pytest.raises(BadLayer, match=why):
        apply(root, body)


def test_packed_with_zstd_needs_something_that_unpacks_it(root: Path) -> None:
    with pytest.raises(BadLayer, match="compressed with zstd"), open_zstd(io.BytesIO(), modules=(), program=None):
        pass


def test_whoever_gives_up_stops_the_unpacking(root: Path) -> None:
    stop = threading.Event()
    stop.set()

    with pytest.raises(BadLayer, match="cancelled"):
        apply(root, layer(Entry("file", b"1")), unpacker=Unpacker(root, stop=stop))

    assert shown(root) == {}
