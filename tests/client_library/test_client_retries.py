"""Retries, idempotency keys, errors, pages and streams of the client, against a server that misbehaves on purpose."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from moorage.client import (
    AsyncClient,
    Client,
    Conflict,
    Internal,
    NotFound,
    RateLimited,
    UnexpectedAnswer,
    Unreachable,
)

Reply = tuple[int, dict[str, str], bytes]


class Server:
    """Answers requests with the given replies, one after the other, and records the requests."""

    def __init__(self) -> None:
        self.replies: list[Reply | None] = []  # None: close the connection without an answer
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.requests.append((self.command, self.path, headers, body))
                reply = server.replies.pop(0)
                if reply is None:
                    self.close_connection = True
                    return
                status, extra, content = reply
                self.send_response(status)
                for name, value in extra.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = do_PATCH = answer  # noqa: N815 - names of the base class

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr("time.sleep", lambda _: None)
    with Client(server.url, token="token") as made:
        yield made


def data(value: Any) -> Reply:
    return 200, {"content-type": "application/json"}, json.dumps({"success": True, "data": value}).encode()


def failure(status: int, code: str, **headers: str) -> Reply:
    error = {"code": code, "message": f"it is {code}", "traceId": "trace", "fields": {"name": "is bad"}}
    return status, headers, json.dumps({"success": False, "error": error}).encode()


WHOAMI = {"userId": 1, "orgId": "7", "orgName": "Harbour", "role": "owner", "newField": [1]}


def test_a_read_is_repeated_until_the_server_is_back(server: Server, client: Client) -> None:
    server.replies = [(503, {}, b""), None, failure(429, "rate_limited", **{"retry-after": "1"}), data(WHOAMI)]

    assert client.identity.whoami().org_id == "7"
    assert len(server.requests) == 4


def test_a_write_is_repeated_with_the_same_idempotency_key(server: Server, client: Client) -> None:
    server.replies = [None, (502, {}, b""), data({"id": 1, "token": "t"})]

    with pytest.raises(UnexpectedAnswer):  # the answer lacks fields
        client.identity.create_token(name="ci")

    keys = [headers["idempotency-key"] for _, _, headers, _ in server.requests]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert json.loads(server.requests[0][3]) == {"name": "ci"}  # fields that are not set are not sent


def test_a_chosen_key_is_sent_and_another_write_gets_its_own(server: Server, client: Client) -> None:
    server.replies = [failure(409, "conflict"), failure(409, "conflict")]

    for key in ("mine", None):
        with pytest.raises(Conflict):
            client.domains.delete(3, idempotency_key=key)

    first, second = (headers["idempotency-key"] for _, _, headers, _ in server.requests)
    assert first == "mine"
    assert len(second) == 32


def test_the_retries_end(server: Server, client: Client) -> None:
    server.replies = [(503, {}, b"<html>busy</html>")] * 4

    with pytest.raises(Internal, match="the server answered 503: <html>busy</html>"):
        client.identity.whoami()


def test_an_error_has_its_class_code_fields_and_trace_id(server: Server, client: Client) -> None:
    server.replies = [failure(404, "not_found")]

    with pytest.raises(NotFound) as caught:
        client.projects.read("a/b?c")

    error = caught.value
    assert (error.status, error.code, error.fields, error.trace_id) == (404, "not_found", {"name": "is bad"}, "trace")
    assert server.requests[0][1] == "/v1/projects/a%2Fb%3Fc"


def test_a_lasting_rate_limit_is_an_error_of_its_own(server: Server, client: Client) -> None:
    server.replies = [failure(429, "rate_limited")] * 4

    with pytest.raises(RateLimited):
        client.identity.whoami()


def test_no_server_is_unreachable(server: Server) -> None:
    server.close()

    with Client(server.url, token="token", retries=0) as client, pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
        client.identity.whoami()


def test_an_answer_of_another_version_is_explained(server: Server, client: Client) -> None:
    server.replies = [data({"something": "else"})]

    with pytest.raises(UnexpectedAnswer, match="may differ in version"):
        client.identity.whoami()


def project(number: int) -> dict[str, Any]:
    names = ("slug", "branch", "repositoryName", "latestDeployment")
    fixed = {"organizationId": "1", "projectUrl": "http://x", "enabled": True, "updatedAt": "2030-01-01T00:00:00.000Z"}
    return {"id": number, "name": f"p{number}", **dict.fromkeys(names), **fixed}


def test_an_iterator_fetches_all_pages(server: Server, client: Client) -> None:
    server.replies = [
        data({"items": [project(1), project(2)], "nextCursor": "more"}),
        data({"items": [project(3)], "nextCursor": None}),
    ]

    assert [each.name for each in client.projects.iterate(limit=2)] == ["p1", "p2", "p3"]
    assert [path for _, path, _, _ in server.requests] == ["/v1/projects?limit=2", "/v1/projects?cursor=more&limit=2"]


def events(*texts: str) -> Reply:
    return 200, {"content-type": "text/event-stream"}, b": open\n\n" + "".join(texts).encode()


LINE = 'id: {0}\nevent: log\ndata: {{"message": "line {0}\u2028"}}\n\n'
DONE = 'event: done\ndata: {"status": "succeeded"}\n\n'


def test_a_stream_goes_on_after_its_last_event_when_the_connection_is_lost(server: Server, client: Client) -> None:
    server.replies = [events(LINE.format(1)), None, (503, {}, b""), events(LINE.format(2), DONE)]

    followed = list(client.deployments.follow("uuid"))

    assert [event.name for event in followed] == ["log", "log", "done"]
    assert followed[1].data == {"message": "line 2\u2028"}
    assert [headers.get("last-event-id") for _, _, headers, _ in server.requests] == [None, "1", "1", "1"]


def test_a_stream_that_the_platform_closes_raises_its_reason(server: Server, client: Client) -> None:
    closed = 'event: closed\ndata: {"code": "unauthorized", "message": "The token was revoked"}\n\n'
    server.replies = [events(LINE.format(1), closed)]

    stream = client.deployments.follow("uuid")
    assert next(stream).id == "1"
    with pytest.raises(Exception, match="The token was revoked"):
        next(stream)


def test_a_stream_gives_up_when_the_server_stays_away(server: Server, client: Client) -> None:
    server.replies = [None] * 6

    with pytest.raises(Unreachable):
        list(client.deployments.follow("uuid"))


class TestAsync:
    pytestmark = pytest.mark.anyio

    @pytest.fixture(autouse=True)
    def no_waiting(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def pass_(_: float) -> None:
            return

        monkeypatch.setattr("moorage.client.asynchronous.asyncio.sleep", pass_)

    async def test_the_same_rules_hold(self, server: Server) -> None:
        server.replies = [(503, {}, b""), data(WHOAMI), failure(404, "not_found")]

        async with AsyncClient(server.url, token="token") as client:
            assert (await client.identity.whoami()).role == "owner"
            with pytest.raises(NotFound):
                await client.projects.read("missing")

    async def test_pages_and_streams_are_iterated(self, server: Server) -> None:
        server.replies = [
            data({"items": [project(1)], "nextCursor": "more"}),
            data({"items": [project(2)], "nextCursor": None}),
            events(LINE.format(1)),
            events(LINE.format(2), DONE),
        ]

        async with AsyncClient(server.url, token="token") as client:
            names = [each.name async for each in client.projects.iterate()]
            followed = [event.name async for event in client.deployments.follow("uuid")]

        assert names == ["p1", "p2"]
        assert followed == ["log", "log", "done"]


def test_the_environment_chooses_platform_token_and_organization(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies = [data(WHOAMI)]
    for name, value in {"URL": server.url, "TOKEN": "from-env", "ORG": "7"}.items():
        monkeypatch.setenv(f"MOORAGE_{name}", value)

    with Client() as client:
        client.identity.whoami()

    headers = server.requests[0][2]
    assert (headers["authorization"], headers["x-organization-id"]) == ("Bearer from-env", "7")


def test_an_upload_is_sent_from_its_beginning_at_each_attempt(server: Server, client: Client, tmp_path: Any) -> None:
    result = {"projectId": 1, "name": "a", "deploymentId": 1, "uploadId": "u", "liveUrl": "http://a", "fileCount": 1}
    archive = tmp_path / "site.zip"
    archive.write_bytes(b"PK-content")
    server.replies = [(503, {}, b""), data(result)]

    client.projects.upload_site(name="a", file=archive)

    assert all(b"PK-content" in body and b'name="staticFiles"' in body for _, _, _, body in server.requests)
