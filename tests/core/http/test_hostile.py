"""Hostile TCP clients: each gets a refusal or a close, and the server continues to serve."""

from __future__ import annotations

import contextlib
import socket
import struct
import time

import pytest
from tests.core.http.live_server import (
    HEALTH,
    POST,
    LiveServer,
    Platform,
    as_json,
    check_refused,
    check_refused_and_closed,
    in_chunks,
    request,
)

from moorage.core.http.server import HEADER_BYTES

pytestmark = pytest.mark.boundary(
    "stranger-to-platform", "Malformed, endless and slow HTTP requests get a bounded answer or a close."
)

KB, MB = 2**10, 2**20


@pytest.mark.parametrize(
    "data",
    [
        b"GET /health HTTP/1.1\r\nX: " + b"a" * 10 * MB,
        b"GET /health HTTP/1.1\r\nX: " + b"a" * 10 * MB + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + b"X-Many: headers\r\n" * (10 * MB // 17),
        b"GET /" + b"a" * 10 * MB + b" HTTP/1.1\r\n\r\n",
        b"GET /?" + b"a" * 10 * MB,
        b"G" * 10 * MB,
        bytes(10 * MB),
    ],
    ids=["one header", "one whole header", "many headers", "path", "query", "method", "zeros"],
)
def test_ten_megabytes_of_headers_are_refused_with_an_answer_to_who_sends_first_and_reads_later(
    server: LiveServer, data: bytes
) -> None:
    with server.dial() as wire:
        wire.send_while_it_can(data)
        wire.end()

        check_refused_and_closed(wire)


def test_headers_are_refused_by_what_came_of_them_though_they_never_end(server: LiveServer) -> None:
    with server.dial() as wire:
        wire.send(b"GET /health HTTP/1.1\r\n")
        for _ in range(HEADER_BYTES // KB + 8):
            wire.send_while_it_can(b"X: " + b"a" * (KB - 5) + b"\r\n")

        reply = wire.reply()

    check_refused(reply)
    assert "64 KiB" in reply.error["message"]


def test_sixty_kilobytes_of_headers_are_taken(server: LiveServer) -> None:
    assert server.ask(b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 60_000 + b"\r\n\r\n").status == 200


def test_a_large_body_in_the_same_segment_does_not_count_as_headers(server: LiveServer, post: bytes) -> None:
    body = as_json({"name": "Quay", "ignored": "x" * 200_000})

    reply = server.ask(post + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    assert reply.status == 200


@pytest.mark.parametrize("begun", [b"G", b"GET /health HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nX: "])
def test_headers_that_come_too_slowly_are_refused(server: LiveServer, begun: bytes) -> None:
    with server.dial() as wire:
        wire.send(begun)

        check_refused_and_closed(wire)


def test_the_headers_of_a_second_request_have_no_more_time(server: LiveServer) -> None:
    with server.dial() as wire:
        wire.send(HEALTH + b"GET /health HTTP/1.1\r\n")
        assert wire.reply().status == 200

        check_refused_and_closed(wire)


@pytest.mark.parametrize("data", [b"", b"\r\n\r\n", b"\r\n" * 5 * MB], ids=["nothing", "line ends", "many of them"])
def test_a_connection_on_which_nothing_is_asked_is_closed(server: LiveServer, data: bytes) -> None:
    with server.dial() as wire:
        wire.send_while_it_can(data)

        assert wire.is_closed()


def test_line_ends_do_not_keep_a_used_connection_open(server: LiveServer) -> None:
    with server.dial() as wire:
        wire.send(HEALTH)
        assert wire.reply().status == 200
        wire.send(b"\r\n")

        assert wire.is_closed()


def test_a_body_that_comes_too_slowly_is_refused(server: LiveServer, post: bytes) -> None:
    reply = server.ask(post + b"Content-Length: 40\r\n\r\n{")

    check_refused(reply)
    assert "too slowly" in reply.error["message"]
    assert reply.headers["connection"] == "close"


def test_a_body_that_drips_is_refused_although_no_pause_is_long(server: LiveServer, post: bytes) -> None:
    with server.dial() as wire:
        wire.send_while_it_can(post + b"Content-Length: 4000\r\n\r\n")
        for _ in range(200):
            wire.send_while_it_can(b" ")
            time.sleep(0.01)
        reply = wire.reply()

    check_refused(reply)
    assert "too slowly" in reply.error["message"]


@pytest.mark.parametrize("target", ["/v1/orgs", "/v1/nothing"])
@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_somebody_who_sends_forty_megabytes_before_reading_sees_the_refusal(
    server: LiveServer, platform: Platform, target: str, framing: str
) -> None:
    body = b" " * 40 * MB if framing == "length" else in_chunks(*[b" " * MB] * 40)
    headers = {"Authorization": f"Bearer {platform.token}"}
    headers |= {"Transfer_Encoding": "chunked"} if framing == "chunks" else {}

    with server.dial() as wire:
        wire.send_while_it_can(request("POST", target, body, **headers))

        check_refused_and_closed(wire, 404 if target == "/v1/nothing" else 400)


def test_a_body_one_byte_over_the_limit_is_refused_and_one_at_it_is_read(server: LiveServer, post: bytes) -> None:
    body = b'{"name":"Quay"}'.ljust(MB)

    fits = server.ask(post + b"Content-Length: %d\r\n\r\n" % MB + body)
    over = server.ask(post + b"Content-Length: %d\r\n\r\n" % (MB + 1) + body + b" ")
    chunked = server.ask(post + b"Transfer-Encoding: chunked\r\n\r\n" + in_chunks(body, b" "))

    assert fits.status == 200
    check_refused(over)
    check_refused(chunked)
    assert "larger than 1 MB" in chunked.error["message"]


def test_no_byte_is_read_for_somebody_without_a_credential_but_they_see_the_answer(server: LiveServer) -> None:
    with server.dial() as wire:
        wire.send_while_it_can(POST + b"Content-Length: %d\r\n\r\n" % (40 * MB) + b" " * 40 * MB)

        check_refused_and_closed(wire, 401)


@pytest.mark.parametrize(
    "chunks",
    [b"1\r\n \r\n" * 1_200_000, b"2;" + b"x" * 4 * MB + b"\r\n{}\r\n0\r\n\r\n", b"7fffffff\r\n" + b" " * 2 * MB],
    ids=["a million of them", "with an endless comment", "one that claims to be huge"],
)
def test_a_bomb_of_chunks_is_refused(server: LiveServer, post: bytes, chunks: bytes) -> None:
    with server.dial() as wire:
        wire.send_while_it_can(post + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)

        check_refused(wire.reply())


@pytest.mark.parametrize("upgrade", [b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"], ids=["plain", "upgrade"])
@pytest.mark.parametrize(
    ("start", "piece"),
    [(b"0\r\nX: ", b"a"), (b"0\r\n", b"a"), (b"0\r\n", b"X: a\r\n"), (b"1;x=", b"a"), (b"", b"0")],
    ids=["trailer", "name", "many trailers", "comment", "zeros"],
)
def test_a_body_is_refused_after_as_many_bytes_of_no_content_as_a_head(
    server: LiveServer, post: bytes, start: bytes, piece: bytes, upgrade: bytes
) -> None:
    with server.dial() as wire:
        wire.send(post + upgrade + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
        wire.send_while_it_can(start + piece * 512 * KB)

        reply = wire.reply()

    check_refused(reply)
    assert "64 KiB" in reply.error["message"]


def test_a_body_shorter_than_announced_has_no_effect(server: LiveServer, post: bytes, platform: Platform) -> None:
    body = as_json({"name": "Half a pier"})

    with server.dial() as wire:
        wire.send(post + b"Content-Length: %d\r\n\r\n" % (len(body) + 1) + body)
        wire.end()
        assert wire.is_closed()

    listed = server.ask(request("GET", "/v1/orgs", Authorization=f"Bearer {platform.session}")).data
    assert "Half a pier" not in [org["name"] for org in listed]


def test_clients_that_reset_their_connections_do_no_harm(server: LiveServer, post: bytes) -> None:
    begins = [b"", b"GET /hea", HEALTH, post + b"Content-Length: 40\r\n\r\n{", b"\x00" * 100, HEALTH * 50]
    resets = struct.pack("ii", 1, 0)  # SO_LINGER with zero: close sends a reset.

    for begun in begins * 5:
        with server.dial() as wire, contextlib.suppress(ConnectionError):
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, resets)
            wire.send(begun)

    assert server.is_serving()


def test_many_connections_that_do_nothing_leave_room_for_one_that_asks(server: LiveServer) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(200):
            held.enter_context(server.dial()).send(b"GET /health HTTP/1.1\r\nX: ")

        assert server.is_serving()
