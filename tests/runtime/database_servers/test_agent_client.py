"""Client of an agent that its tenant controls: answers have limits."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from moorage.core.kit.clock import SystemClock
from moorage.runtime.database_servers.agent import certificates, client
from moorage.runtime.database_servers.agent.client import AgentClient
from moorage.runtime.database_servers.agent.model import PORT
from moorage.runtime.database_servers.ports import ServerFailed

HOST, NAME = "127.0.9.41", "database-41"
MAX_FILE_BYTES = 2**20


class Endless(BaseHTTPRequestHandler):
    """Answers each request with bytes until the client leaves."""

    def do_GET(self) -> None:
        self._answer(200)

    def do_PUT(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        self._answer(500 if self.path == "/refuse" else 200)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.end_headers()
        while True:
            self.wfile.write(b" " * 65536)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Print nothing."""


class Agent(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that disconnects is no error."""


@pytest.fixture
def hostile() -> Iterator[AgentClient]:
    own = certificates.make(NAME, SystemClock().now())
    with Agent((HOST, PORT), Endless) as server:
        context = certificates.context(ssl.Purpose.CLIENT_AUTH, own.authority, own.server, own.server_key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield AgentClient(NAME, own, lambda: HOST, lambda: MAX_FILE_BYTES)
        server.shutdown()
        thread.join()


@pytest.mark.boundary("code-to-host", "An agent that its tenant controls fills no memory and no disk of the platform.")
def test_answers_and_files_of_an_agent_have_limits(
    hostile: AgentClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 2**20)
    (tmp_path / "upload").write_bytes(b"x")

    for verb in ("ping", "refuse"):
        with pytest.raises(ServerFailed, match="its pod sent an answer above 1 MB"):
            hostile.call(verb)
    with pytest.raises(ServerFailed, match="its pod sent an answer above 1 MB"):
        hostile.upload(tmp_path / "upload", "name")
    with pytest.raises(ServerFailed, match="its pod sent a file above 1 MB"):
        hostile.download("name", tmp_path / "file")

    assert (tmp_path / "file").stat().st_size <= MAX_FILE_BYTES
