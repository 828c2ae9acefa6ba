"""A control process is killed in the middle of an upload: a repeat under the same key takes effect once."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.e2e.functions_support import form, zip_of
from tests.platform.control_process import ControlProcess, control_process
from tests.postgres_server import PostgresServer

KEY = {"Idempotency-Key": "upload-7"}
FUNCTION = zip_of({"main.py": "def main(params):\n    return {}\n"})
SITE = zip_of({"index.html": "<h1>Harbor</h1>"})


@dataclass
class HoldingScanner:
    """A virus scanner that gives no verdict until it may: a request that asks it is in the middle of its work."""

    listener: socket.socket
    asked: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=threading.Event)

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._judge, args=(connection,), daemon=True).start()

    def _judge(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as stream:
            stream.read(len(b"zINSTREAM\0"))
            while size := int.from_bytes(stream.read(4)):
                stream.read(size)
            self.asked.set()
            self.may_answer.wait()
            connection.sendall(b"stream: OK\0")


@pytest.fixture
def scanner() -> Iterator[HoldingScanner]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = HoldingScanner(listener)
        threading.Thread(target=made.serve, daemon=True).start()
        yield made
        made.may_answer.set()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.twin)])
def control(request: pytest.FixtureRequest, tmp_path: Path, scanner: HoldingScanner) -> Iterator[ControlProcess]:
    host, port = scanner.listener.getsockname()
    flags = ["--clamd", f"{host}:{port}"]
    if request.param == "sqlite":
        with control_process(tmp_path, *flags) as made:
            yield made
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.create_database()
    with control_process(tmp_path, *flags, "--database-url", url) as made:
        yield made
    server.drop_database(url)


def site_form(name: str) -> tuple[bytes, dict[str, str]]:
    body, headers = form(SITE, name=name)
    return body.replace(b'name="code"', b'name="staticFiles"'), headers


UPLOADS = {
    "a function": ("/v1/functions", form(FUNCTION, name="harbor", runtime="python"), "/v1/functions/harbor/versions"),
    "a site": ("/v1/projects/static-upload", site_form("harbor"), "/v1/projects/harbor/deployments"),
}


@pytest.mark.deep
def test_a_key_is_free_after_a_kill_before_the_commit_and_the_repeat_takes_effect_once(
    control: ControlProcess, scanner: HoldingScanner
) -> None:
    """Both kinds of upload wait for the scanner when the process is killed."""
    lost: list[threading.Thread] = []
    for path, (body, headers), _ in UPLOADS.values():
        scanner.asked.clear()
        lost.append(threading.Thread(target=swallow, args=(control, path, body, headers)))
        lost[-1].start()
        assert scanner.asked.wait(60)

    control.kill()
    for each in lost:
        each.join()
    scanner.may_answer.set()
    left = os.listdir(control.data / "uploads")
    control.start()

    assert len(left) == 2
    if "--database-url" not in control.flags:  # Others may share a data folder on PostgreSQL: there, age decides.
        assert os.listdir(control.data / "uploads") == []
    for path, (body, headers), made_path in UPLOADS.values():
        first = control.call("POST", path, body, headers | KEY)
        again = control.call("POST", path, body, headers | KEY)
        assert (first.status, again.status) == (200, 200), (first.body, again.body)
        assert first.body == again.body
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"
        made = control.call("GET", made_path).data
        assert len(made["items"] if isinstance(made, dict) else made) == 1


def swallow(control: ControlProcess, path: str, body: bytes, headers: dict[str, str]) -> None:
    """Send a request whose answer never comes."""
    with contextlib.suppress(OSError):
        control.call("POST", path, body, headers | KEY)
