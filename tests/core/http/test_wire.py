"""HTTP on the wire: ambiguous and broken requests are refused."""

from __future__ import annotations

import socket

import pytest
from tests.core.http.live_server import (
    HEALTH,
    POST,
    Closed,
    LiveServer,
    Platform,
    as_json,
    check_refused,
    check_refused_and_closed,
    in_chunks,
    request,
)

from moorage.core.net import host_header

KB, MB = 2**10, 2**20


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
        b"Content-Length: 4, 5\r\n\r\nabcde",
        b"Content-Length: +4\r\n\r\nabcd",
        b"Content-Length: -1\r\n\r\nabcd",
        b"Content-Length: 0x4\r\n\r\nabcd",
        b"Content-Length: 4 4\r\n\r\nabcd",
        b"Content-Length:\r\n\r\nabcd",
        b"Content-Length: 99999999999999999999999\r\n\r\nabcd",
        b"Content-Length : 4\r\n\r\nabcd",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: identity\r\n\r\nabcd",
        b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        b"X: a\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"X: a\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"X: a\nTransfer-Encoding: chunked\n\n0\n\n",
    ],
)
def test_framing_that_two_servers_could_read_differently_is_refused_and_nothing_after_it_is_run(
    server: LiveServer, post: bytes, framing: bytes
) -> None:
    with server.dial() as wire:
        wire.send_while_it_can(post + framing + HEALTH)

        check_refused_and_closed(wire)


@pytest.mark.parametrize(
    "chunks",
    [
        b"zz\r\n\r\n",
        b"-1\r\nabc\r\n",
        b" 2\r\n{}\r\n0\r\n\r\n",
        b"0x2\r\n{}\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\nabc\r\n",
        b"2\r\n{}{}\r\n0\r\n\r\n",
        b"2\n{}\n0\n\n",
        b"\r\n",
        b"2\r\n{}\r\n\r\n",
        b"2;\x00\r\n{}\r\n0\r\n\r\n",
    ],
)
def test_chunks_that_are_broken_are_refused(server: LiveServer, post: bytes, chunks: bytes) -> None:
    with server.dial() as wire:
        wire.send_while_it_can(post + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)

        check_refused_and_closed(wire)


def test_fields_after_the_last_chunk_are_no_headers(server: LiveServer, platform: Platform) -> None:
    trailer = f"Authorization: Bearer {platform.token}\r\n".encode()

    reply = server.ask(POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + trailer + b"\r\n")

    check_refused(reply, 401)


def test_sixty_kilobytes_of_fields_after_the_last_chunk_are_ignored(server: LiveServer, post: bytes) -> None:
    chunks = in_chunks(as_json({"name": "Pier"})).removesuffix(b"\r\n") + b"X-T: aaaaaaaaaa\r\n" * 3500 + b"\r\n"

    reply = server.ask(post + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)

    assert reply.data["name"] == "Pier"


@pytest.mark.parametrize(
    "line",
    [
        b"FOO /health HTTP/1.1",
        b"get /health HTTP/1.1",
        b"GET /health HTTP/1.1 x",
        b"GET /health HTTP/9.9",
        b"GET /health HTTP/1.2",
        b"GET /health HTTP/11",
        b"GET /health ICE/1.0",
        b"GET health HTTP/1.1",
        b"GET HTTP/1.1",
        b"GET example.com:80 HTTP/1.1",
        b"GET http://example.com HTTP/1.1",
        b"GET ?x HTTP/1.1",
        b"CONNECT example.com:443 HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"GET /v1/me\xff HTTP/1.1",
        "GET /v1/mé HTTP/1.1".encode(),
        b"GET /v1/me\x00 HTTP/1.1",
        b"GET /v1/me\x01 HTTP/1.1",
        b"GET /v1/activity?cursor=\xff HTTP/1.1",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
        b"{}",
        b"GET /\xf0\x9f\x9a\x80 HTTP/1.1",
    ],
)
def test_a_request_line_that_is_none_is_refused(server: LiveServer, line: bytes) -> None:
    with server.dial() as wire:
        wire.send_while_it_can(line + b"\r\nHost: x\r\n\r\n")

        check_refused_and_closed(wire)


@pytest.mark.parametrize(
    "header", [b"X Y: a", b": a", b"foo", b"X: a\x00b", b"X: a\x7fb\x00", b"\xff: a", b"X\x00: a", b" X: a", b"X\t: a"]
)
def test_a_header_that_is_none_is_refused(server: LiveServer, header: bytes) -> None:
    with server.dial() as wire:
        wire.send_while_it_can(b"GET /health HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n\r\n")

        check_refused_and_closed(wire)


TWO_HOSTS = b"Host: one.example\r\nHost: two.example\r\n"


@pytest.mark.boundary("stranger-to-platform", "A request that names no host, several or a malformed one is refused.")
@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"GET /health HTTP/1.1\r\n", host_header.ABSENT),
        (b"GET http://one.example/health HTTP/1.1\r\n", host_header.ABSENT),
        (b"GET /health HTTP/1.1\r\n" + TWO_HOSTS, host_header.SEVERAL),
        (b"GET /health HTTP/1.0\r\n" + TWO_HOSTS, host_header.SEVERAL),
        (b"GET /health HTTP/1.1\r\nHost: one.example\r\nhOST: one.example\r\n", host_header.SEVERAL),
        (b"GET /health HTTP/1.1\r\nHost: one.example, two.example\r\n", host_header.MALFORMED),
        (b"GET /health HTTP/1.0\r\nHost:\r\n", host_header.MALFORMED),
        (b"GET /v1/me HTTP/1.1\r\nHost: user@one.example\r\n", host_header.MALFORMED),
    ],
)
def test_a_request_without_one_clear_host_is_refused_and_nothing_after_it_is_run(
    server: LiveServer, head: bytes, message: str
) -> None:
    with server.dial() as wire:
        wire.send_while_it_can(head + b"\r\n" + HEALTH)
        reply = wire.reply()

        check_refused(reply)
        assert reply.error["message"] == message
        assert reply.headers["connection"] == "close"
        assert wire.is_closed()


def test_a_host_field_after_the_last_chunk_is_not_a_second_host(server: LiveServer, post: bytes) -> None:
    chunks = in_chunks(as_json({"name": "Groyne"})).removesuffix(b"\r\n") + b"Host: two.example\r\n\r\n"

    assert server.ask(post + b"Transfer-Encoding: chunked\r\n\r\n" + chunks).data["name"] == "Groyne"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET http://other.example/health HTTP/1.1", 200),
        (b"GET /health#part HTTP/1.1", 200),
        (b"GET  /health  HTTP/1.1", 200),
        (b"GET /health? HTTP/1.1", 200),
        (b"GET /%68ealth HTTP/1.1", 200),
        (b"TRACE /health HTTP/1.1", 404),
        (b"PROPFIND /health HTTP/1.1", 404),
        (b"OPTIONS * HTTP/1.1", 404),
        (b"CONNECT /health HTTP/1.1", 404),
        (b"GET //health HTTP/1.1", 404),
        (b"GET /v1/../health HTTP/1.1", 404),
        (b"GET /health%00 HTTP/1.1", 404),
        (b"GET /health%ff HTTP/1.1", 404),
        (b"GET /%zz%f HTTP/1.1", 404),
        (b"GET /" + b"a/" * 20_000 + b" HTTP/1.1", 404),
        (b"GET http://x.example/v1/nothing HTTP/1.1", 404),
    ],
)
def test_an_odd_request_line_leads_where_its_path_says(server: LiveServer, line: bytes, status: int) -> None:
    assert server.ask(line + b"\r\nHost: x\r\n\r\n").status == status


@pytest.mark.parametrize(
    "header", [b"Authorization: Bearer \xff\xfe", b"X-Organization-Id: \xff", b"Cookie: \xff", b"Content-Type: \xff"]
)
def test_bytes_that_are_no_text_in_a_header_are_no_credential(server: LiveServer, header: bytes) -> None:
    check_refused(server.ask(b"GET /v1/me HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n\r\n"), 401)


def test_pipelined_requests_are_answered_in_order(server: LiveServer, platform: Platform) -> None:
    bearer = f"Bearer {platform.token}"
    targets = ["/v1/orgs", "/health", "/v1/nothing", "/v1/me", "/health", "/v1/orgs"]

    with server.dial() as wire:
        wire.send(b"".join(request("GET", target, Authorization=bearer) for target in targets))
        replies = [wire.reply() for _ in targets]

    assert [reply.status for reply in replies] == [200, 200, 404, 200, 200, 200]
    assert replies[1].json["status"] == "ok"
    assert replies[3].data["id"] > 0
    assert replies[0].data == replies[5].data


def test_a_thousand_pipelined_requests_are_all_answered(server: LiveServer) -> None:
    with server.dial() as wire:
        wire.send(HEALTH * 1000)
        statuses = [wire.reply().status for _ in range(1000)]

    assert statuses == [200] * 1000


@pytest.mark.parametrize("target", ["/health", "/v1/orgs", "/v1/me"])
def test_noise_behind_a_request_does_not_take_the_place_of_its_answer(
    server: LiveServer, platform: Platform, target: str
) -> None:
    with server.dial() as wire:
        wire.send_while_it_can(
            request("GET", target, Authorization=f"Bearer {platform.token}") + b"\x00noise\r\n\r\n" + HEALTH
        )
        replies = wire.replies()

    # A read that was answered before the garbage arrived gets a 400 for the garbage; the rest is not run.
    assert [reply.status for reply in replies] in ([200], [200, 400])


def test_a_body_longer_than_announced_is_not_part_of_the_request(server: LiveServer, post: bytes) -> None:
    body = as_json({"name": "Mole"})

    with server.dial() as wire:
        wire.send_while_it_can(post + b"Content-Length: %d\r\n\r\n" % len(body) + body + b"x" * 1000 + b"\r\n\r\n")
        replies = wire.replies()

    assert [reply.status for reply in replies] == [200]
    assert replies[0].data["name"] == "Mole"


@pytest.mark.parametrize("line", [b"GET /health HTTP/1.0", b"GET /health"])
def test_an_old_client_gets_an_answer_and_the_end_of_the_connection(server: LiveServer, line: bytes) -> None:
    with server.dial() as wire:
        wire.send(line + b"\r\n\r\n")

        assert wire.reply().status == 200
        assert wire.is_closed()


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(server: LiveServer, post: bytes) -> None:
    body = as_json({"name": "Jetty"})

    with server.dial() as wire:
        wire.send(post + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        interim = wire.head()
        wire.send(body)
        reply = wire.reply()

    assert interim == b"HTTP/1.1 100 Continue"
    assert reply.data["name"] == "Jetty"


@pytest.mark.parametrize("is_known", [True, False])
def test_a_client_that_asks_first_is_not_invited_to_send_what_would_be_refused(
    server: LiveServer, post: bytes, is_known: bool
) -> None:
    with server.dial() as wire:
        length = 20 * MB if is_known else 2
        wire.send((post if is_known else POST) + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % length)
        head = wire.head()

    assert head.startswith(b"HTTP/1.1 400" if is_known else b"HTTP/1.1 401")


UPGRADES = {
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\nSec-WebSocket-Version: 13\r\n",
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    "nonsense": b"Connection: upgrade\r\nUpgrade: \xff/9\r\n",
}


@pytest.mark.parametrize("offer", UPGRADES.values(), ids=UPGRADES.keys())
def test_an_offer_to_upgrade_is_answered_as_if_it_had_not_been_made(server: LiveServer, offer: bytes) -> None:
    with server.dial() as wire:
        wire.send_while_it_can(b"GET /health HTTP/1.1\r\nHost: x\r\n" + offer + b"\r\n\x81\x85frames" + HEALTH)
        replies = wire.replies()

    assert [reply.status for reply in replies] == [200]
    assert replies[0].headers["connection"] == "close"


@pytest.mark.parametrize("offer", UPGRADES.values(), ids=UPGRADES.keys())
@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_the_body_of_a_request_that_offers_an_upgrade_is_its_body_and_no_request(
    server: LiveServer, post: bytes, offer: bytes, is_split: bool, is_chunked: bool
) -> None:
    """JVM clients offer HTTP/2 with every write; the body must never be run as a request."""
    body = as_json({"name": "Wharf", "ignored": HEALTH.decode()})
    framed = in_chunks(body[:5], body[5:]) if is_chunked else body
    framing = b"Transfer-Encoding: chunked\r\n" if is_chunked else b"Content-Length: %d\r\n" % len(body)

    with server.dial() as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = post + offer + framing + b"\r\n"
        for data in (head, framed + HEALTH) if is_split else (head + framed + HEALTH,):
            wire.send_while_it_can(data)
        replies = wire.replies()

    assert [reply.status for reply in replies] == [200]
    assert replies[0].data["name"] == "Wharf"


def test_a_broken_body_behind_an_offer_to_upgrade_is_refused(server: LiveServer, post: bytes) -> None:
    with server.dial() as wire:
        wire.send_while_it_can(post + UPGRADES["h2c"] + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")

        check_refused_and_closed(wire)


@pytest.mark.parametrize("target", ["/health", "/v1/me", "/v1/orgs"])
def test_a_client_that_ends_its_side_after_asking_still_gets_its_answers(
    server: LiveServer, platform: Platform, target: str
) -> None:
    with server.dial() as wire:
        wire.send(request("GET", target, Authorization=f"Bearer {platform.token}") * 2)
        wire.end()
        replies = wire.replies()

    assert [reply.status for reply in replies] == [200, 200]


@pytest.mark.parametrize("begun", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nX: "])
def test_a_client_that_ends_its_side_before_asking_is_let_go(server: LiveServer, begun: bytes) -> None:
    with server.dial() as wire:
        wire.send(begun)
        wire.end()

        with pytest.raises(Closed):
            wire.reply()


def test_head_over_a_socket_has_no_body_and_keeps_the_connection(server: LiveServer) -> None:
    with server.dial() as wire:
        wire.send(request("HEAD", "/docs") + request("HEAD", "/v1/nothing") + HEALTH)
        page, nothing, health = wire.reply(is_head=True), wire.reply(is_head=True), wire.reply()

    assert (page.status, nothing.status, health.json["status"]) == (200, 404, "ok")
    assert int(page.headers["content-length"]) > 1000
