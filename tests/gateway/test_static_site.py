"""What visitors of a static site get: its files, clean addresses, its own pages for what is not there."""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.gateway.support import Reply, exchange, fetch, make_release, make_settings, read_reply, running_caddy

from moorage.core.net import error_pages
from moorage.gateway import releases, sites
from moorage.gateway.config import pages, static
from moorage.gateway.sites import HostMarker
from moorage.settings import Settings

HOST = "harbor.localhost"
BLOB = random.Random(4).randbytes(50_000)


BROWSER = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    settings = make_settings(tmp_path_factory.mktemp("gw") / ".moo{r}[a-c]ge *")
    with running_caddy(settings):
        yield settings


@pytest.fixture(scope="module")
def site(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A site with pages, and one of its own for what is not there."""
    names = ["index", "about", "docs/index", "both", "both/index", "guide/start", "ünïcode päge", "50% off?#1", "v1.2"]
    names += ["ünïcode dïr/index", "60% off?#1/index", "docs/v2.0/index", "old.html/index", "folder.js/index"]
    files = {f"{name}.html": f"{name}: " + "text " * 500 for name in names}
    release = make_release(tmp_path_factory.mktemp("release"), files | {"404.html": "lost " * 500, "a.js": "a = 1;"})
    (release / "blob.bin").write_bytes(BLOB)
    publish(settings, HOST, release)
    return settings


@pytest.fixture(scope="module")
def app(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A single-page application."""
    files = {"index.html": "the app " * 500, "assets/index-B3f9aQ1x.js": "run()", "assets/logo.svg": "<svg/>"}
    publish(settings, "app.localhost", make_release(tmp_path_factory.mktemp("app"), files))
    return settings


def publish(settings: Settings, host: str, release: Path) -> None:
    releases.prepare(release)
    sites.publish(settings, host, release)


def text_of(reply: Reply) -> str:
    return reply.body.decode().partition(":")[0]


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("/", "index"),
        ("/index.html", "index"),
        ("/about", "about"),
        ("/about.html", "about"),
        ("/about?q=1", "about"),
        ("/docs/", "docs/index"),
        ("/docs/?a=b", "docs/index"),
        ("/docs/index.html", "docs/index"),
        ("/both/", "both/index"),
        ("/guide/start", "guide/start"),
        ("/guide/../about", "about"),
        ("//about", "about"),
        ("/v1.2", "v1.2"),
        ("/%61bout", "about"),
        (quote("/ünïcode päge"), "ünïcode päge"),
        (quote("/ünïcode päge.html"), "ünïcode päge"),
        (quote("/50% off?#1"), "50% off?#1"),
        (quote("/50% off?#1.html") + "?a=b", "50% off?#1"),
    ],
)
def test_a_page_is_served_at_its_addresses(site: Settings, path: str, page: str) -> None:
    reply = fetch(site, HOST, path)

    assert (reply.status, text_of(reply)) == (200, page)
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["cache-control"] == static.REVALIDATED
    assert reply.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/about/", "/about"),
        ("/about/?a=b&c=%20d", "/about?a=b&c=%20d"),
        ("/guide/start/", "/guide/start"),
        (quote("/ünïcode päge/"), quote("/ünïcode päge")),
        (quote("/50% off?#1/") + "?a", quote("/50% off?#1") + "?a"),
    ],
)
def test_a_slash_too_many_is_taken_away_and_the_query_kept(site: Settings, path: str, location: str) -> None:
    reply = fetch(site, HOST, path)
    there = fetch(site, HOST, location)

    assert (reply.status, reply.headers["location"]) == (308, location)
    assert there.status == 200


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/docs", "/docs/"),
        ("/docs?a=b&c=%20d", "/docs/?a=b&c=%20d"),
        ("/both", "/both/"),
        ("/docs/v2.0", "/docs/v2.0/"),
        ("/old.html", "/old.html/"),
        ("/folder.js?a", "/folder.js/?a"),
        (quote("/ünïcode dïr"), quote("/ünïcode dïr/")),
        (quote("/60% off?#1") + "?a", quote("/60% off?#1/") + "?a"),
    ],
)
def test_a_folder_with_an_index_page_is_redirected_to_its_slash(site: Settings, path: str, location: str) -> None:
    reply, head = fetch(site, HOST, path), fetch(site, HOST.upper(), path, method="HEAD")
    there = fetch(site, HOST, location)

    assert [(each.status, each.headers["location"]) for each in (reply, head)] == [(308, location)] * 2
    assert reply.headers["cache-control"] == static.REVALIDATED
    assert there.status == 200


@pytest.mark.parametrize("path", ["//about/", "//docs", "///docs", "//evil.example/", "//evil.example/%2e%2e"])
def test_no_address_leads_to_another_host(site: Settings, path: str) -> None:
    location = fetch(site, HOST, path).headers.get("location", "/")

    assert location.startswith("/")
    assert not location.startswith("//")


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/nothing/", "/guide", "/guide/", "/docs/nothing.js", "/about/nothing", "/a.js/x", "/" + "x" * 300],
)
def test_the_sites_own_page_says_what_is_not_there(site: Settings, path: str) -> None:
    headers = "If-None-Match: *\r\nRange: bytes=0-3\r\n"

    reply = fetch(site, HOST, path, headers=headers)
    head = fetch(site, HOST, path, method="HEAD")

    assert (reply.status, reply.body) == (404, b"lost " * 500)
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["cache-control"] == static.REVALIDATED
    assert (head.status, head.body) == (404, b"")


@pytest.mark.parametrize("accept", ["", "Accept: */*\r\n", "Accept: image/png\r\nAccept: text/html;q=0.9\r\n"])
@pytest.mark.parametrize("path", ["/deep/link", "/a.js/b/?q=1.js", "/v1.2", "/" + "x" * 300, "/index.html/x"])
def test_every_page_address_of_a_single_page_application_shows_its_page(app: Settings, path: str, accept: str) -> None:
    reply = fetch(app, "app.localhost", path, headers=accept)

    assert (reply.status, reply.body) == (200, b"the app " * 500)
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["cache-control"] == static.REVALIDATED


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        ("/assets/missing-B3f9aQ1y.js", "text/html"),
        ("/missing.js.map", "*/*"),
        ("/deep/logo.PNG", "image/avif,image/webp,*/*;q=0.8"),
        ("/fonts/a.woff2", "*/*"),
        ("/data.7z", "text/html"),
        ("/" + "x" * 300 + ".css", "text/html"),
        ("/deep/link", "application/json"),
        ("/deep/link", "text/css"),
    ],
)
def test_a_missing_file_of_a_single_page_application_is_not_found(app: Settings, path: str, accept: str) -> None:
    reply = fetch(app, "app.localhost", path, headers=f"Accept: {accept}\r\n")

    assert (reply.status, reply.headers["cache-control"]) == (404, "no-store")
    assert b"the app" not in reply.body


def test_the_page_of_an_application_is_only_for_reading(app: Settings) -> None:
    post = fetch(app, "app.localhost", "/deep/link", method="POST", headers="Content-Length: 0\r\n")
    kept = fetch(app, "app.localhost", "/deep/link")
    again = fetch(app, "app.localhost", "/deep/link", headers=f"If-None-Match: {kept.headers['etag']}\r\n")

    assert (post.status, post.error["code"]) == (404, "not_found")
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("path", ["/.moorage/spa.html", "/.moorage/kept/assets/index-B3f9aQ1x.js", "/.moorage/"])
def test_what_the_platform_adds_to_a_release_is_not_served_under_its_own_name(app: Settings, path: str) -> None:
    assert fetch(app, "app.localhost", path).status == 404


def test_a_file_whose_name_is_a_hash_is_kept_for_a_year_and_others_are_asked_for_again(app: Settings) -> None:
    hashed = fetch(app, "app.localhost", "/assets/index-B3f9aQ1x.js")
    plain = fetch(app, "app.localhost", "/assets/logo.svg")

    assert (hashed.body, hashed.headers["cache-control"]) == (b"run()", static.IMMUTABLE)
    assert (plain.body, plain.headers["cache-control"]) == (b"<svg/>", static.REVALIDATED)


@pytest.mark.parametrize(
    ("asked", "status", "start", "end"),
    [
        ("bytes=0-9", 206, 0, 10),
        ("bytes=100-49999", 206, 100, 50_000),
        ("bytes=-5", 206, 49_995, 50_000),
        ("bytes=49999-", 206, 49_999, 50_000),
        ("bytes=49999-60000", 206, 49_999, 50_000),
        ("lines=1-2", 416, 0, 0),
        ("bytes=50000-", 416, 0, 0),
    ],
)
def test_a_range_is_exactly_those_bytes(site: Settings, asked: str, status: int, start: int, end: int) -> None:
    reply = fetch(site, HOST, "/blob.bin", headers=f"Range: {asked}\r\nAccept-Encoding: gzip, zstd\r\n")

    assert reply.status == status
    if status == 206:
        assert reply.body == BLOB[start:end]
        assert reply.headers["content-range"] == f"bytes {start}-{end - 1}/50000"


def test_a_range_of_a_page_is_one_of_what_was_published(site: Settings) -> None:
    headers = "Range: bytes=0-4\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n"

    reply = fetch(site, HOST, "/about", headers=headers)
    etag = reply.headers["etag"]
    newer = fetch(site, HOST, "/about", headers=headers + 'If-Range: "other"\r\n')
    same = fetch(site, HOST, "/about", headers=headers + f"If-Range: {etag}\r\n")

    assert (reply.status, reply.body, same.body) == (206, b"about", b"about")
    assert "content-encoding" not in reply.headers
    assert (newer.status, text_of(newer)) == (200, "about")


@pytest.mark.parametrize("encoding", ["", "gzip", "zstd", "gzip, deflate, br, zstd"])
@pytest.mark.parametrize("path", ["/about", "/", "/blob.bin", "/a.js"])
def test_what_has_not_changed_is_not_sent_again(site: Settings, path: str, encoding: str) -> None:
    accepts = f"Accept-Encoding: {encoding}\r\n" if encoding else ""
    first = fetch(site, HOST, path, headers=accepts)
    etag, modified = first.headers["etag"], first.headers["last-modified"]

    by_etag = fetch(site, HOST, path, headers=accepts + f"If-None-Match: {etag}\r\n")
    by_list = fetch(site, HOST, path, headers=accepts + f'If-None-Match: "x", {etag}\r\n')
    by_time = fetch(site, HOST, path, headers=accepts + f"If-Modified-Since: {modified}\r\n")
    other = fetch(site, HOST, path, headers=accepts + f'If-None-Match: "x"\r\nIf-Modified-Since: {modified}\r\n')

    assert [reply.status for reply in (by_etag, by_list, by_time, other)] == [304, 304, 304, 200]
    assert (by_etag.body, other.body) == (b"", first.body)
    assert by_etag.headers["cache-control"] == first.headers["cache-control"]


def test_head_says_what_get_would(site: Settings) -> None:
    got, head = fetch(site, HOST, "/about"), fetch(site, HOST, "/about", method="HEAD")

    assert (head.status, head.body) == (200, b"")
    assert {**got.headers, "date": ""} == {**head.headers, "date": ""}


def test_texts_are_compressed_ahead_of_time_or_on_the_way_and_pictures_are_not(
    settings: Settings, tmp_path: Path
) -> None:
    release = make_release(tmp_path / "r", {"page.html": "text " * 999, "late.css": "x { color: red } " * 999})
    (release / "photo.png").write_bytes(b"\x89PNG" + b"a" * 5000)
    releases.prepare(release)
    (release / "late.css.gz").unlink()
    sites.publish(settings, "small.localhost", release)

    def get(path: str, encoding: str) -> Reply:
        return fetch(settings, "small.localhost", path, headers=f"Accept-Encoding: {encoding}\r\n")

    ahead, on_the_way = get("/page.html", "gzip, deflate, br"), get("/late.css", "gzip")
    zstd, photo, plain = get("/late.css", "zstd, gzip"), get("/photo.png", "gzip, zstd"), get("/page.html", "identity")

    assert gzip.decompress(ahead.body) == b"text " * 999
    assert ahead.body == (release / "page.html.gz").read_bytes()
    assert gzip.decompress(on_the_way.body) == b"x { color: red } " * 999
    assert zstd.headers["content-encoding"] == "zstd"
    assert "content-encoding" not in photo.headers | plain.headers
    assert len({reply.headers["etag"] for reply in (ahead, plain)}) == 2
    assert {reply.headers["vary"] for reply in (ahead, on_the_way, photo, plain)} == {"Accept-Encoding"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.wasm", "application/wasm"),
        ("a.avif", "image/avif"),
        ("a.svg", "image/svg+xml"),
        ("A.PNG", "image/png"),
        ("a.webmanifest", "application/manifest+json"),
        ("a.woff2", "font/woff2"),
        ("a.ico", "image/x-icon"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.map", "application/json"),
        ("a.mp4", "video/mp4"),
        ("a.xml", "application/xml"),
    ],
)
def test_files_have_the_type_of_their_ending(settings: Settings, tmp_path: Path, name: str, kind: str) -> None:
    publish(settings, "types.localhost", make_release(tmp_path / "release", {name: "x"}))

    reply = fetch(settings, "types.localhost", f"/{name}")

    assert (reply.status, reply.headers["content-type"]) == (200, kind)


def test_a_file_of_no_known_type_is_not_guessed_at(settings: Settings, tmp_path: Path) -> None:
    publish(
        settings, "types.localhost", make_release(tmp_path / "release", {"a.unheard": "<script>", "LICENSE": "text"})
    )

    replies = [fetch(settings, "types.localhost", path) for path in ("/a.unheard", "/LICENSE")]

    assert [reply.status for reply in replies] == [200, 200]
    assert {reply.headers["x-content-type-options"] for reply in replies} == {"nosniff"}
    assert [reply.headers.get("content-type", "") for reply in replies] == ["", ""]


@pytest.mark.parametrize(
    "host", ["HARBOR.localhost", "Harbor.LOCALHOST:80", "harbor.localhost.", "HARBOR.localhost.:80"]
)
def test_a_host_in_upper_case_or_with_the_dot_of_the_root_is_the_same_host(site: Settings, host: str) -> None:
    page, missing = fetch(site, host, "/about"), fetch(site, host, "/nothing")

    assert (page.status, text_of(page)) == (200, "about")
    assert (missing.status, missing.body) == (404, b"lost " * 500)


def test_a_switched_off_host_says_so_until_it_is_switched_on(settings: Settings, tmp_path: Path) -> None:
    release = make_release(tmp_path / "release", {"index.html": "hi"})
    sites.mark(settings, HostMarker.DISABLED, "off.localhost")

    off = fetch(settings, "off.localhost", "/any/path")
    posted = fetch(settings, "OFF.localhost", "/", method="POST", headers="Content-Length: 0\r\n")
    sites.publish(settings, "off.localhost", release)
    sites.unmark(settings, HostMarker.DISABLED, "off.localhost")
    on = fetch(settings, "off.localhost")

    assert [off.status, posted.status] == [503, 503]
    assert off.headers["content-type"] == "text/html; charset=utf-8"
    assert (off.headers["retry-after"], off.headers["cache-control"]) == (str(pages.RETRY_AFTER_S), "no-store")
    assert b"switched off" in off.body
    assert (on.status, on.body) == (200, b"hi")


def test_an_unknown_host_is_said_to_people_in_a_page_and_to_programs_in_the_envelope(settings: Settings) -> None:
    page = fetch(settings, "nobody.localhost", headers=BROWSER)
    program = fetch(settings, "nobody.localhost", headers="Accept: application/json\r\n")

    assert (page.status, program.status) == (404, 404)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert pages.NOTHING_HERE.encode() in page.body
    assert program.error["code"] == "not_found"
    assert {page.headers["cache-control"], program.headers["cache-control"]} == {"no-store"}


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (HostMarker.BUILDING, "This project is being built, and is published here when the build has succeeded"),
        (HostMarker.UNPUBLISHED, "This project is not published yet"),
    ],
)
def test_a_host_without_a_release_says_whether_one_is_being_built(
    settings: Settings, tmp_path: Path, marker: HostMarker, message: str
) -> None:
    sites.mark(settings, marker, "new.localhost")

    program = fetch(settings, "NEW.localhost", "/any/path")
    page = fetch(settings, "new.localhost", headers=BROWSER)
    sites.publish(settings, "new.localhost", make_release(tmp_path / "release", {"index.html": "hi"}))
    published = fetch(settings, "new.localhost")
    sites.unmark(settings, marker, "new.localhost")
    sites.unpublish(settings, "new.localhost")
    gone = fetch(settings, "new.localhost")

    assert (program.status, program.error["message"], page.status) == (404, message, 404)
    assert f"<p>{message}.</p>" in page.body.decode()
    assert ('http-equiv="refresh"' in page.body.decode()) is (marker is HostMarker.BUILDING)
    assert (published.status, published.body) == (200, b"hi")
    assert gone.error["message"] == pages.NOTHING_HERE


def test_a_published_site_without_the_requested_page_says_so(settings: Settings, tmp_path: Path) -> None:
    sites.publish(settings, "bare.localhost", make_release(tmp_path / "release", {"about.html": "about"}))

    start, other = (fetch(settings, "bare.localhost", path) for path in ("/", "/nothing"))

    assert (start.status, other.status) == (404, 404)
    assert start.error["message"] == "This site has no start page: it was published without an index.html"
    assert other.error["message"] == "This site has no page at this address"


def test_a_page_of_the_gateway_has_a_strict_policy_and_its_style_sheet_as_written(settings: Settings) -> None:
    page = fetch(settings, "nobody.localhost", headers=BROWSER + "X-Request-Id: mine\r\n")

    assert page.headers["content-security-policy"] == error_pages.POLICY
    assert f"<style>{error_pages.STYLE}</style>" in page.body.decode()
    assert (page.headers["vary"], page.headers["x-content-type-options"]) == ("Accept", "nosniff")
    assert "<code>mine</code>" in page.body.decode()


@pytest.mark.boundary("stranger-to-platform", "Nothing of a request is repeated in a page of the gateway.")
@pytest.mark.parametrize("host", ["nobody.localhost", "<script>.localhost", "{http.request.uuid}", "a_<b>"])
def test_nothing_of_a_request_is_in_a_page(settings: Settings, host: str) -> None:
    hostile = BROWSER + "X-Request-Id: <script>\r\nUser-Agent: <script>\r\n"

    page = fetch(settings, host, "/%3Cscript%3E/{http.request.host}?<script>", headers=hostile)

    assert page.status in (400, 404)
    assert b"script" not in page.body
    assert host.encode() not in page.body


def test_a_switched_off_host_answers_a_program_that_wants_json_in_the_envelope(settings: Settings) -> None:
    sites.mark(settings, HostMarker.DISABLED, "quiet.localhost")

    reply = fetch(settings, "quiet.localhost", headers="Accept: application/json\r\n")

    assert (reply.status, reply.headers["retry-after"]) == (503, str(pages.RETRY_AFTER_S))
    assert "switched off" in reply.error["message"]


def test_two_releases_made_at_the_same_moment_with_files_of_equal_length_have_other_etags(
    settings: Settings, tmp_path: Path
) -> None:
    seen: list[tuple[str, str]] = []
    for text in ("one " * 500, "two " * 500, "one " * 500):
        release = make_release(tmp_path / f"release-{len(seen)}", {"index.html": text})
        releases.prepare(release)
        for file in ("index.html", "index.html.gz"):
            moment = (release / file).stat().st_mtime_ns % 10**9 + 1_800_000_000 * 10**9
            os.utime(release / file, ns=(moment, moment))
        sites.publish(settings, "etag.localhost", release)
        plain = fetch(settings, "etag.localhost")
        small = fetch(settings, "etag.localhost", headers="Accept-Encoding: gzip\r\n")
        seen.append((plain.headers["etag"], small.headers["etag"]))

    assert seen[0] == seen[2]
    assert len({*seen[0], *seen[1]}) == 4


def test_a_request_in_pieces_and_one_after_the_other_on_a_connection_are_answered(site: Settings) -> None:
    request = f"GET /about HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
    last = f"GET /a.js HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"

    answer = exchange(site, (request + last).encode())

    first_length = int(read_reply(answer).headers["content-length"])
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert read_reply(rest[first_length:]).body == b"a = 1;"
