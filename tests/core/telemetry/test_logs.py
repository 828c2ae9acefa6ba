"""Log lines: their fields, and texts that they never contain."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.core.telemetry.conftest import Told

from moorage.core.telemetry.logs import RotatingFile

pytestmark = pytest.mark.group("telemetry")


def test_a_request_is_one_line_with_trace_route_and_duration_and_without_its_token(told: Told) -> None:
    mine = [line for line in told.lines("trace-of-mine") if line["event"] == "request"]

    assert [(line["method"], line["route"], line["status"]) for line in mine] == [
        ("POST", "/v1/api-tokens", 200),
        ("GET", "/v1/me", 200),
    ]
    assert all(line["ms"] >= 0 and line["user"] == 1 for line in mine)
    assert [secret for secret in told.secrets if secret in told.log] == []


def test_a_job_carries_the_trace_of_the_request_that_asked_for_it(told: Told) -> None:
    assert {line["event"] for line in told.lines("made-an-org")} == {"request", "job"}


def test_what_looks_like_a_token_is_masked_wherever_it_comes_from() -> None:
    program = (
        "from moorage.core.telemetry import logs\n"
        "logs.configure('json', 'info', process='test')\n"
        "logs.get_logger('t').info('x', why='rejected psk_test_abcdefghijklmnop and eyJhbGciOi.J9.abc')\n"
        "try:\n    raise ValueError('psk_live_abcdefghijklmnop')\n"
        "except ValueError as error:\n    logs.get_logger('t').error('y', exc_info=error)\n"
        "logs.get_logger('t').debug('not shown')\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "abcdefghijklmnop" not in ended.stderr
    assert "J9.abc" not in ended.stderr
    assert "psk_****" in ended.stderr
    assert "not shown" not in ended.stderr


@pytest.mark.parametrize("shows_requests", [False, True])
def test_a_terminal_shows_requests_only_when_asked_and_the_file_has_every_line(
    tmp_path: Path, *, shows_requests: bool
) -> None:
    program = (
        "from pathlib import Path\n"
        "from moorage.core.telemetry import logs\n"
        f"logs.configure('text', 'info', process='test', folder=Path({str(tmp_path)!r}), "
        f"shows_requests={shows_requests})\n"
        "logs.get_logger('t').warning('a warning')\n"
        "logs.get_logger('t').info('job')\n"
        "logs.access_writer()(logs.AccessLine('t1', 'GET', '/v1/me', 200, 1.5, 1, 1, '127.0.0.1'))\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    kept = [json.loads(line) for line in (tmp_path / "test.log").read_text().splitlines()]
    assert "a warning" in ended.stderr
    assert ("/v1/me" in ended.stderr, "job" in ended.stderr) == (shows_requests, shows_requests)
    assert [(line["event"], line["level"], line["process"]) for line in kept] == [
        ("a warning", "warning", "test"),
        ("job", "info", "test"),
        ("request", "info", "test"),
    ]
    assert (tmp_path / "test.log").stat().st_mode & 0o777 == 0o600


def test_a_full_log_file_becomes_the_previous_one(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "control.log", max_bytes=10)

    for line in (b"first\n", b"second\n", b"third\n"):
        file.write(line)

    assert (tmp_path / "control.log").read_bytes() == b"third\n"
    assert (tmp_path / "control.log.1").read_bytes() == b"second\n"
