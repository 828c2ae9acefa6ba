"""Archives whose paths have the part `.`, as tools write them that pack a folder: the part is left out."""

from pathlib import Path

import pytest
from tests.core.kit.zip_bytes import FOLDER, LINK, MB, Piece, archive

from moorage.core.kit.zips import BadArchive, Caps, extract, inspect

pytestmark = pytest.mark.boundary(
    "tenant-to-tenant", "An uploaded archive writes nothing outside of its own folder and beyond its declared size."
)

CAPS = Caps(packed_bytes=MB, unpacked_bytes=MB)
GOOD = Piece(b"good.txt")


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_dots_in_paths_are_left_out(tmp_path: Path) -> None:
    source, target = tmp_path / "upload.zip", tmp_path / "unpacked"
    pieces = [
        Piece(b"./", b"", mode=FOLDER),
        Piece(b"./index.html"),
        Piece(b"./docs/", b"", mode=FOLDER),
        Piece(b"./docs/./a.html"),
        Piece(b"docs/././b.html"),
        Piece(b"img/./", b"", mode=FOLDER),
        Piece(b"./.well-known/x"),
        Piece(b"././__MACOSX/._index.html"),
    ]
    source.write_bytes(archive(*pieces))

    entries = extract(source, target, CAPS)

    names = ["index.html", "docs", "docs/a.html", "docs/b.html", "img", ".well-known/x"]
    assert [entry.name for entry in entries] == names
    assert files_in(target) == {"index.html", "docs/a.html", "docs/b.html", ".well-known/x"}
    assert inspect(source, CAPS) == entries


def test_a_top_folder_below_a_dot_is_left_out_too(tmp_path: Path) -> None:
    source, target = tmp_path / "upload.zip", tmp_path / "unpacked"
    pieces = [Piece(b"./", b"", mode=FOLDER), Piece(b"./site/", b"", mode=FOLDER), Piece(b"./site/index.html")]
    source.write_bytes(archive(*pieces))

    extract(source, target, CAPS, strip_top=True)

    assert files_in(target) == {"index.html"}


REFUSED = {
    "a file named as a dot": ([Piece(b".")], "has an empty part"),
    "a dot as a file": ([Piece(b"a/.")], "has an empty part"),
    "an empty part after a dot": ([Piece(b"a/.//b")], "has an empty part"),
    "a slash after a dot": ([Piece(b".//", b"", mode=FOLDER)], "has an empty part"),
    "a parent after a dot": ([Piece(b"./../x")], "leaves the folder"),
    "a parent after a dot at the end": ([Piece(b"./..")], "leaves the folder"),
    "a parent between dots": ([Piece(b"a/./../b")], "leaves the folder"),
    "a parent folder after a dot": ([Piece(b"./../", b"", mode=FOLDER)], "leaves the folder"),
    "an absolute path after a dot": ([Piece(b".//etc/passwd")], "has an absolute path"),
    "an absolute path with a dot": ([Piece(b"/./etc/passwd")], "has an absolute path"),
    "a drive letter after a dot": ([Piece(b"./C:/x")], "has an absolute path"),
    "backslashes after a dot": ([Piece(b".\\..\\x")], "has a backslash"),
    "a link named as the root": ([Piece(b"./", b"", mode=LINK)], "'./' is a link"),
    "a root with data": ([Piece(b"./", b"data", mode=FOLDER)], "'./' is a folder with data"),
    "a file with and without a dot": ([GOOD, Piece(b"./good.txt")], "'good.txt' has the same name"),
    "a file with dots in its path": ([Piece(b"a/b"), Piece(b"./a/././B")], "'a/B' has the same name"),
    "a file used as a folder": ([Piece(b"a"), Piece(b"a/./b")], "'a/b' uses a file as a folder"),
    "another name at the data": ([Piece(b"./a", local_name=b"a")], "'./a' has another name"),
}


def test_paths_that_are_refused_are_refused_with_dots_too(tmp_path: Path, subtests: pytest.Subtests) -> None:
    source, target = tmp_path / "upload.zip", tmp_path / "unpacked"
    for case, (pieces, words) in REFUSED.items():
        with subtests.test(case):
            source.write_bytes(archive(*pieces))

            with pytest.raises(BadArchive, match=words):
                inspect(source, CAPS)
            with pytest.raises(BadArchive, match=words):
                extract(source, target, CAPS)
            assert not target.exists()
