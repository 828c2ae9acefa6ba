"""Client of an agent: calls over mutual TLS. All methods block, so callers run them in threads."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from moorage.core.kit.decoding import decode
from moorage.runtime.database_servers.agent import certificates
from moorage.runtime.database_servers.agent.certificates import Certificates
from moorage.runtime.database_servers.agent.model import PORT, Refusal
from moorage.runtime.database_servers.ports import ServerFailed
from moorage.runtime.database_servers.queries.model import StatementFailed

T = TypeVar("T")
CONNECT_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 3600.0  # A dump or a load takes as long as it takes; a lost agent ends the connection.
CHUNK = 1024 * 1024
MAX_ANSWER_BYTES = 64 * 2**20  # Programs of the tenant may have changed the agent.
AWAY = "its pod does not answer"


class AgentAway(ServerFailed):
    """No connection to the agent: it starts, or its node is away."""


class AgentClient:
    """Connects for each call: an agent may have moved to another address."""

    def __init__(
        self,
        name: str,
        certificates_: Certificates,
        find_host: Callable[[], str | None],
        find_max_file_bytes: Callable[[], int],
    ) -> None:
        self._name = name
        self._find_host = find_host  # returns the current address; None while there is none
        self._find_max_file_bytes = find_max_file_bytes  # returns the size of the volume that has all files
        own = certificates_
        self._context = certificates.context(ssl.Purpose.SERVER_AUTH, own.authority, own.client, own.client_key)

    def call(self, verb: str, *arguments: Any, returns: type[T] | Any = None, timeout_s: float = CALL_TIMEOUT_S) -> Any:
        """Return the result of a call; raises ServerFailed, StatementFailed or AgentAway."""
        body = msgspec.json.encode(arguments)
        with self._request("POST", f"/{verb}", body, timeout_s) as response:
            return decode(_read(response), returns)

    def upload(self, source: Path, name: str) -> None:
        with source.open("rb") as file, self._request("PUT", f"/files/{name}", file, CALL_TIMEOUT_S) as response:
            _read(response)

    def download(self, name: str, target: Path) -> None:
        """Write a file of the agent to a new file; raises ServerFailed for one that is larger than its volume."""
        max_bytes = self._find_max_file_bytes()
        with self._request("GET", f"/files/{name}", None, CALL_TIMEOUT_S) as response, target.open("xb") as file:
            while chunk := response.read(CHUNK):
                if file.tell() + len(chunk) > max_bytes:
                    raise ServerFailed(f"its pod sent a file above {max_bytes >> 20} MB")
                file.write(chunk)
            if response.length:
                raise AgentAway("the connection to its pod broke off")

    @contextlib.contextmanager
    def _request(
        self, method: str, path: str, body: bytes | IO[bytes] | None, timeout_s: float
    ) -> Iterator[http.client.HTTPResponse]:
        host = self._find_host()
        if not host:
            raise AgentAway("it has no pod that runs")
        connection = _Connection(host, self._name, self._context, timeout_s)
        try:
            headers = {"Content-Length": str(_size(body))} if body is not None else {}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise _error_of(decode(_read(response), Refusal))
            yield response
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            raise AgentAway(f"{AWAY} ({error or type(error).__name__})") from error
        finally:
            connection.close()


class _Connection(http.client.HTTPConnection):
    """Connection to an address, whose certificate has to have the name of the agent."""

    def __init__(self, host: str, name: str, context: ssl.SSLContext, timeout_s: float) -> None:
        super().__init__(host, PORT, timeout=CONNECT_TIMEOUT_S)
        self._name, self._context, self._timeout_s = name, context, timeout_s

    def connect(self) -> None:
        raw = socket.create_connection((self.host, self.port), CONNECT_TIMEOUT_S)
        try:
            self.sock = self._context.wrap_socket(raw, server_hostname=self._name)
        except BaseException:
            raw.close()
            raise
        self.sock.settimeout(self._timeout_s)


def _read(response: http.client.HTTPResponse) -> bytes:
    answer = response.read(MAX_ANSWER_BYTES + 1)
    if len(answer) > MAX_ANSWER_BYTES:
        raise ServerFailed(f"its pod sent an answer above {MAX_ANSWER_BYTES >> 20} MB")
    return answer


def _size(body: bytes | IO[bytes]) -> int:
    if isinstance(body, bytes):
        return len(body)
    size = body.seek(0, 2)
    body.seek(0)
    return size


def _error_of(refusal: Refusal) -> Exception:
    if refusal.kind == "statement":
        return StatementFailed(refusal.message, state=refusal.state, position=refusal.position)
    return ServerFailed(refusal.message)
