"""Several processes on one PostgreSQL: the API in one, the workers in another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.platform.running import clean_environment, free_ports
from tests.postgres_server import PostgresServer

MONITORS = 20


@contextmanager
def process(part: str, data: Path, url: str, api_port: int, metrics_port: int) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "moorage.cli.main", part, "--data", str(data), "--database-url", url]
    argv += ["--api-port", str(api_port), "--metrics-port", str(metrics_port)]
    started = subprocess.Popen(argv, env=clean_environment(), cwd="/", stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/ready", timeout=2).status == 200)
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(15)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def wait_for(condition: Any, timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def call(port: int, path: str, *, body: Any = None, token: str = "") -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    data = json.dumps(body if body is not None else {}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())["data"]


@pytest.mark.deep
@pytest.mark.group("postgres")
def test_what_the_api_asks_for_a_worker_elsewhere_does_and_another_takes_over_when_it_dies(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.create_database()
    ports, more = free_ports(), free_ports()
    data = tmp_path / "data"

    def statuses() -> dict[str, int]:
        with psycopg.connect(url) as connection:
            return dict(connection.execute("SELECT status, count(*) FROM job GROUP BY status").fetchall())

    with process("serve", data, url, ports["api"], ports["metrics"]):
        token = call(ports["api"], "/v1/auth/demo")["token"]
        waiting = statuses()
        with process("work", data, url, more["api"], more["metrics"]) as worker:
            wait_for(lambda: statuses() == {"done": 1})
            os.kill(worker.pid, signal.SIGKILL)
            worker.wait()
        call(ports["api"], "/v1/orgs", body={"name": "Harbor"}, token=token)
        with process("work", data, url, more["gateway"], more["edge"]):
            wait_for(lambda: statuses().get("done", 0) >= 2)

    assert waiting == {"queued": 1}
    postgres.drop_database(url)


@pytest.mark.deep
@pytest.mark.group("postgres")
def test_workers_share_monitors_and_one_takes_over_those_of_another_that_is_killed(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.create_database()
    ports, more = free_ports(), free_ports()
    data = tmp_path / "data"

    def holders() -> list[int]:
        """Return how many monitors each process has, as far as anybody has them."""
        with psycopg.connect(url) as connection:
            return sorted(
                count
                for (count,) in connection.execute(
                    "SELECT count(*) FROM monitor WHERE prober IN (SELECT token FROM prober) GROUP BY prober"
                ).fetchall()
            )

    def checked_since(moment_ms: int) -> int:
        with psycopg.connect(url) as connection:
            query = "SELECT count(DISTINCT monitor_id) FROM heartbeat WHERE at > %s"
            [(count,)] = connection.execute(query, (moment_ms,)).fetchall()
            return int(count)

    with (
        process("serve", data, url, ports["api"], ports["metrics"]),
        process("work", data, url, more["api"], more["metrics"]) as doomed,
        process("work", data, url, more["gateway"], more["edge"]),
    ):
        token = call(ports["api"], "/v1/auth/demo")["token"]
        target = f"http://127.0.0.1:{ports['api']}/health"
        for number in range(MONITORS):
            body = {"name": f"m{number}", "url": target, "interval": 30}
            call(ports["api"], "/v1/monitors", body=body, token=token)
        wait_for(lambda: len(holders()) == 2 and sum(holders()) == MONITORS)
        killed_at = int(time.time() * 1000)
        os.kill(doomed.pid, signal.SIGKILL)
        doomed.wait()
        wait_for(lambda: holders() == [MONITORS])
        wait_for(lambda: checked_since(killed_at) == MONITORS, timeout_s=60)

    postgres.drop_database(url)
