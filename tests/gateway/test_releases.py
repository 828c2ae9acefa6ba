"""A release is made ready once, before anybody sees it."""

from __future__ import annotations

import gzip
import os
import random
import stat
import time
from pathlib import Path

import pytest
from tests.gateway.support import make_release

from moorage.gateway import releases
from moorage.gateway.config.fingerprints import is_fingerprinted


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("files", "has_single_page"),
    [
        (["index.html", "app.js"], True),
        (["index.html", "about.html"], False),
        (["index.html", "deep/old.HTM"], False),
        (["index.html", "404.html"], False),
        (["app.js"], False),
        (["app/index.html"], False),
        (["index.html", ".moorage/spa.html"], True),
        (["index.html", "about.html", ".moorage/spa.html"], False),
    ],
)
def test_only_a_site_of_one_page_shows_it_at_every_address(
    tmp_path: Path, files: list[str], has_single_page: bool
) -> None:
    release = make_release(tmp_path / "release", {name: f"text of {name}" for name in files})

    releases.prepare(release)

    assert (release / ".moorage/spa.html").exists() == has_single_page
    if has_single_page:
        assert (release / ".moorage/spa.html").read_text() == "text of index.html"


def test_texts_get_a_compressed_twin_where_it_is_worth_it(tmp_path: Path) -> None:
    noise = random.Random(5).randbytes(5000)
    release = make_release(tmp_path / "release", {"a.html": "a" * 5000, "b.html": "b", "own.css": "c" * 5000})
    for name in ("photo.png", "noise.js"):
        (release / name).write_bytes(noise if name == "noise.js" else b"a" * 5000)
    (release / "own.css.gz").write_bytes(b"the site's own")

    releases.prepare(release)

    assert {name for name in files_of(release) if name.endswith(".gz")} == {"a.html.gz", "own.css.gz"}
    assert gzip.decompress((release / "a.html.gz").read_bytes()) == b"a" * 5000
    assert (release / "own.css.gz").read_bytes() == b"the site's own"


def test_a_file_too_large_to_compress_ahead_is_sealed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "MOST_BYTES", 10_000)
    times = []
    for end in ("x", "y"):
        release = make_release(tmp_path / end, {"large.js": "a" * 3_000_000 + end})
        releases.prepare(release)
        times.append((release / "large.js").stat().st_mtime_ns % 10**9)

    assert files_of(tmp_path) == {"x/large.js", "y/large.js"}
    assert times[0] != times[1]


def test_files_are_read_only_and_new(tmp_path: Path) -> None:
    release = make_release(tmp_path / "release", {"a/b.js": "x" * 3000, "run.sh": "#"})
    (release / "run.sh").chmod(0o700)
    (release / "a").chmod(0o700)
    os.utime(release / "a/b.js", (0, 0))
    before = int(time.time())

    releases.prepare(release)

    paths = [path for path in release.rglob("*") if path.is_file()]
    assert len(paths) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o444}
    assert stat.S_IMODE((release / "a").stat().st_mode) == 0o755
    assert all(before <= path.stat().st_mtime <= time.time() + 1 for path in paths)


def test_files_with_a_hash_in_their_name_are_set_apart_with_their_twins(tmp_path: Path) -> None:
    names = ["assets/index-B3f9aQ1x.js", "plain.js", "index.html"]
    release = make_release(tmp_path / "release", dict.fromkeys(names, "text " * 999))

    releases.prepare(release)

    kept = release / ".moorage/kept"
    assert files_of(kept) == {"assets/index-B3f9aQ1x.js", "assets/index-B3f9aQ1x.js.gz"}
    assert (kept / names[0]).samefile(release / names[0])


@pytest.mark.parametrize(
    "path",
    [
        "assets/index-DiwrgTda.js",
        "assets/index-D-wr_Tda.css",
        "assets/app-B3f9aQ1x.js",
        "js/app-B3f9aQ1x.js",
        "main.3f2a9bc1.chunk.css",
        "static/js/main.073c9b0a.js.map",
        "app.deadbeef.js",
        "app-abcdef12.mjs",
        "chunk-5QWWLC3E.js",
        "main-app-1a2b3c4d5e6f7a8b.js",
        "_next/static/XyZ/_buildManifest.js",
        "_nuxt/BxYzA1b2.js",
        "_astro/hoisted.DjkWOEbo.js",
        "_app/immutable/entry/start.js",
        "550e8400e29b41d4a716446655440000.png",
        "fonts/inter-latin.4fe6132e.woff2",
    ],
)
def test_names_that_tools_make_of_contents_never_change(path: str) -> None:
    assert is_fingerprinted(path)


@pytest.mark.parametrize(
    "path",
    [
        "index-B3f9aQ1x.html",
        "_next/static/page.html",
        "components/UserList.js",
        "app-UserList.js",
        "report-chapter1.pdf",
        "logo-Chapter1.png",
        "assets/logo-Chapter1.png",
        "IMG_0001.jpg",
        "assets/image001.png",
        "style-20240101.css",
        "photo-12345678.jpg",
        "bootstrap-material.css",
        "jquery-3.7.1.min.js",
        "_nuxt/builds/latest.json",
        "favicon.ico",
        "service-worker.js",
        "assets/sw.js",
        "deadbeef",
    ],
)
def test_names_that_people_make_may_stay_while_their_contents_change(path: str) -> None:
    assert not is_fingerprinted(path)
