"""Parsing of access log lines."""

from __future__ import annotations

import json

import pytest
from tests.products.analytics.support import BROWSER, line

from moorage.products.analytics.lines import Hit, parse

AT = 1_767_225_600_123


def hit(**what: object) -> Hit:
    found = parse(line(AT, **what).encode())  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_line_says_who_asked_for_what_and_what_came_of_it() -> None:
    found = hit(uri="/docs/", size=1234, status=304, seconds=0.25, referer="https://news.example.com/item?id=1")

    assert found == Hit(
        "harbor.localhost", AT, "/docs/", "news.example.com", f"203.0.113.9\n{BROWSER}".encode(), 304, 1234, 0.25
    )


@pytest.mark.parametrize(
    ("written", "host"),
    [("Harbor.Localhost:8081", "harbor.localhost"), ("harbor.localhost.", "harbor.localhost"), ("[::1]:80", "[::1]")],
)
def test_a_host_is_known_by_its_name_alone(written: str, host: str) -> None:
    assert hit(host=written).host == host


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/a?token=secret", "/a"),
        ("/?x", "/"),
        ("/a#b?c", "/a"),
        ("", "/"),
        ("*", "*"),
        ("/%e2%9c%93/a%20b", "/%e2%9c%93/a%20b"),
        ("/" + "x" * 500, "/" + "x" * 199),
        ("/nul\0byte", "/nulbyte"),
    ],
)
def test_a_path_has_no_query_and_at_most_200_characters(uri: str, path: str) -> None:
    assert hit(uri=uri).path == path


@pytest.mark.parametrize(
    ("referer", "host"),
    [
        ("https://News.Example.com:8443/a/b?c=d#e", "news.example.com"),
        ("https://user:password@example.com/", "example.com"),
        ("android-app://com.example.app/", "com.example.app"),
        ("https://harbor.localhost/other-page", None),
        ("", None),
        ("not an address", None),
        ("https://[broken", None),
    ],
)
def test_a_referrer_is_the_host_of_another_site_or_nothing(referer: str, host: str | None) -> None:
    assert hit(referer=referer).referrer == host


@pytest.mark.parametrize(
    "agent",
    [
        "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
        "Mozilla/5.0 (compatible; bingbot/2.0)",
        "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2)",
        "facebookexternalhit/1.1",
        "Baiduspider+(+http://www.baidu.com/search/spider.htm)",
        "Mozilla/5.0 HeadlessChrome/140.0.0.0",
        "UptimeRobot/2.0",
        "Feedfetcher-Google",
    ],
)
def test_a_bot_that_says_so_is_no_visitor(agent: str) -> None:
    assert hit(agent=agent).visitor is None


@pytest.mark.parametrize("agent", [BROWSER, "Mozilla/5.0 (Linux; Android 11; CUBOT X30)", "curl/8.5.0", ""])
def test_everybody_else_is_a_visitor(agent: str) -> None:
    assert hit(agent=agent).visitor == f"203.0.113.9\n{agent}".encode()


def test_a_line_of_caddy_left_to_itself_has_referrer_and_program_among_its_headers() -> None:
    text = (
        '{"level":"info","ts":1794733420.5882485,"logger":"http.log.access.access","msg":"handled request",'
        '"request":{"remote_ip":"127.0.0.1","remote_port":"57802","client_ip":"127.0.0.1","proto":"HTTP/1.1",'
        '"method":"GET","host":"blog.localhost","uri":"/index.html?token=secret","headers":{"User-Agent":'
        '["curl/7.88.1"],"Accept":["*/*"],"Referer":["https://news.example.com/x?y=1"]}},"bytes_read":0,"user_id":"",'
        '"duration":0.003834757,"size":6,"status":200,"resp_headers":{"Server":["Caddy"]}}'
    )

    assert parse(text.encode()) == Hit(
        "blog.localhost",
        1794733420588,
        "/index.html",
        "news.example.com",
        b"127.0.0.1\ncurl/7.88.1",
        200,
        6,
        0.003834757,
    )


def test_without_a_client_address_the_connection_s_own_is_taken() -> None:
    entry = json.loads(line(AT))
    del entry["request"]["client_ip"]

    found = parse(json.dumps(entry).encode())

    assert found is not None
    assert found.visitor == f"127.0.0.1\n{BROWSER}".encode()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"garbage",
        b"\0" * 64,
        b"{",
        b"[]",
        b'{"ts":1}',
        line(AT).encode()[:-40],
        line(AT).replace('"ts":', '"ts":"soon",').encode(),
        line(AT).replace("1767225600.123", "1e400").encode(),
        line(AT).replace('"host":"harbor', '"host":"\\ud800').encode(),
        b"\xff\xfe" + line(AT).encode(),
    ],
)
def test_what_is_no_line_of_a_log_is_nothing(text: bytes) -> None:
    assert parse(text) is None
