"""HTTPS server of an agent: calls as POST requests, and files of dumps."""

from __future__ import annotations

import inspect
import shutil
import ssl
import typing
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from moorage.core.kit.decoding import decode
from moorage.runtime.database_servers.agent.model import Refusal
from moorage.runtime.database_servers.agent.verbs import Verbs
from moorage.runtime.database_servers.ports import ServerFailed
from moorage.runtime.database_servers.queries.model import StatementFailed

MAX_BODY_BYTES = 16 * 2**20
HANDSHAKE_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 300.0  # of a connection without a request
CHUNK = 1024 * 1024
FILES = "/files/"


class Call(typing.NamedTuple):
    """A call that the agent serves."""

    run: Callable[..., Any]
    arguments: Any  # type of the tuple of its arguments


def calls_of(verbs: Verbs) -> dict[str, Call]:
    """Return the public methods that have a call, by name."""
    found = {}
    for name, method in inspect.getmembers(verbs, inspect.ismethod):
        if name.startswith("_") or name == "file":
            continue
        hints = typing.get_type_hints(method)
        hints.pop("return")
        found[name] = Call(method, tuple[tuple(hints.values())] if hints else tuple[()])  # type: ignore[misc]
    return found


class AgentServer(ThreadingHTTPServer):
    """Serves clients that have a certificate of the agent's authority; others end in the handshake."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, context: ssl.SSLContext, verbs: Verbs) -> None:
        super().__init__((host, port), _Handler)
        self.context, self.verbs = context, verbs
        self.calls = calls_of(verbs)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Do the handshake in the thread of the connection, so that a slow client delays no other."""
        request.settimeout(HANDSHAKE_TIMEOUT_S)
        try:
            secured = self.context.wrap_socket(request, server_side=True)
        except (OSError, ssl.SSLError):
            return
        try:
            secured.settimeout(IDLE_TIMEOUT_S)
            super().finish_request(secured, client_address)
        finally:
            secured.close()

    def shutdown_request(self, request: Any) -> None:
        # The handshake detached the socket.
        if request.fileno() >= 0:
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that disconnects is no error of the agent."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: AgentServer

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        if length > MAX_BODY_BYTES:
            self._refuse(413, Refusal(kind="bug", message="the request is too large"))
            return
        body, call = self.rfile.read(length), self.server.calls.get(self.path.lstrip("/"))
        if call is None:
            self._refuse(404, Refusal(kind="bug", message=f"the agent has no call {self.path}"))
            return
        try:
            result = call.run(*decode(body, call.arguments))
        except ServerFailed as error:
            self._refuse(409, Refusal(kind="server", message=str(error)))
        except StatementFailed as error:
            refusal = Refusal(kind="statement", message=error.message, state=error.state, position=error.position)
            self._refuse(409, refusal)
        except OSError as error:
            self._refuse(409, Refusal(kind="server", message=f"the volume of the database: {error.strerror or error}"))
        except Exception as error:  # noqa: BLE001 - answered to the platform, which reports it
            self._refuse(500, Refusal(kind="bug", message=f"{type(error).__name__}: {error}"))
        else:
            self._answer(200, msgspec.json.encode(result))

    def do_PUT(self) -> None:
        left = int(self.headers["Content-Length"])
        try:
            with self.server.verbs.file(self.path.removeprefix(FILES)).open("wb") as file:
                while left > 0 and (chunk := self.rfile.read(min(CHUNK, left))):
                    file.write(chunk)
                    left -= len(chunk)
        except (OSError, ServerFailed) as error:
            self.close_connection = True
            self._refuse(409, Refusal(kind="server", message=f"the volume of the database: {error}"))
            return
        self._answer(200, b"null")

    def do_GET(self) -> None:
        path = self.server.verbs.file(self.path.removeprefix(FILES))
        if not path.is_file():
            self._refuse(404, Refusal(kind="server", message="the file is gone"))
            return
        with path.open("rb") as file:
            self.send_response(200)
            self.send_header("Content-Length", str(path.stat().st_size))
            self.end_headers()
            shutil.copyfileobj(file, self.wfile, CHUNK)

    def _refuse(self, status: int, refusal: Refusal) -> None:
        self._answer(status, msgspec.json.encode(refusal))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """The output of the pod is the log of the database server."""
