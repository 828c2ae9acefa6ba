"""Logs: what a line says, and what never stands in one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.platform.running import running


def test_a_request_is_one_line_with_trace_route_and_duration_and_without_its_token(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data, "--log-format", "json") as platform:
        token = platform.token()
        headers = {"Authorization": f"Bearer {token}", "x-request-id": "trace-of-mine"}
        made = platform.call("POST", "/v1/api-tokens", headers=headers, json_body={"name": "hunter2-in-the-body"})
        raw = made[1]["data"]["token"]
        platform.call("GET", f"/v1/me?access_token={raw}", headers=headers)
        platform.stop()

    text = (tmp_path / "data.log").read_text()
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    mine = [line for line in lines if line.get("trace") == "trace-of-mine" and line["event"] == "request"]
    assert [(line["method"], line["route"], line["status"]) for line in mine] == [
        ("POST", "/v1/api-tokens", 200),
        ("GET", "/v1/me", 200),
    ]
    assert all(line["ms"] >= 0 and line["user"] == 1 for line in mine)
    for secret in (token, raw, token.split(".")[2], "hunter2-in-the-body"):
        assert secret not in text


def test_a_job_carries_the_trace_of_the_request_that_asked_for_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data, "--log-format", "json") as platform:
        headers = {"Authorization": f"Bearer {platform.token()}", "x-request-id": "made-an-org"}
        platform.call("POST", "/v1/orgs", headers=headers, json_body={"name": "Harbor"})
        log = tmp_path / "data.log"
        platform.wait_until(lambda: '"event":"job"' in "".join(line for line in log.open() if "made-an-org" in line))

    lines = [json.loads(line) for line in log.read_text().splitlines() if "made-an-org" in line]
    assert {line["event"] for line in lines} == {"request", "job"}


def test_what_looks_like_a_token_is_masked_wherever_it_comes_from() -> None:
    program = (
        "from moorage.telemetry import logs\n"
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
