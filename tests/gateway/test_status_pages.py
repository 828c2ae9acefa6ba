"""Status pages through the public gateway: on the platform's own hosts, and nothing else of the API with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.gateway.support import fetch, make_settings, running_caddy

from moorage.settings import Settings


class Api(BaseHTTPRequestHandler):
    """Stands where the API listens, and says what it was asked."""

    def do_GET(self) -> None:
        body = f"{self.command} {self.path} {self.headers['X-Request-Id']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        return


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    settings = make_settings(tmp_path_factory.mktemp("status"))
    server = ThreadingHTTPServer(("127.0.0.1", settings.api_port), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with running_caddy(settings):
        yield settings
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "localhost:8081"])
def test_a_status_page_is_reached_through_the_gateway(settings: Settings, host: str) -> None:
    reply = fetch(settings, host, "/status/harbor", headers="X-Request-Id: mine\r\n")

    assert (reply.status, reply.body) == (200, b"GET /status/harbor mine")
    assert [name for name in reply.headers if name in ("server", "via")] == []


@pytest.mark.parametrize("path", ["/status", "/status/../v1/me", "/v1/me", "/health", "/statuses/harbor"])
def test_nothing_but_status_pages_goes_on_to_the_api(settings: Settings, path: str) -> None:
    assert fetch(settings, "localhost", path).error["message"] == "Nothing is published at this address"


def test_a_page_is_only_read(settings: Settings) -> None:
    reply = fetch(settings, "localhost", "/status/harbor", method="POST", headers="Content-Length: 0\r\n")

    assert reply.status == 404


def test_a_projects_own_host_does_not_lead_to_status_pages(settings: Settings) -> None:
    reply = fetch(settings, "other.localhost", "/status/harbor")

    assert reply.error["message"] == "Nothing is published at this address"
