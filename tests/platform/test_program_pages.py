"""Memory of a program's start is freed in the real Caddy, which goes on to answer requests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.platform.control_process import wait_for
from tests.ports import free_port

from moorage.gateway.caddy import find_caddy
from moorage.platform import program_pages


@pytest.fixture
def caddy(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """Run a copy of Caddy, because the kernel keeps pages that other processes map too; yield its PID and address."""
    port = free_port()
    routes = [{"handle": [{"handler": "static_response", "body": "hello"}]}]
    servers = {"test": {"listen": [f"127.0.0.1:{port}"], "routes": routes}}
    config = tmp_path / "caddy.json"
    config.write_text(json.dumps({"admin": {"disabled": True}, "apps": {"http": {"servers": servers}}}))
    program = shutil.copy(find_caddy(), tmp_path / "caddy")
    with subprocess.Popen(
        [str(program), "run", "--config", str(config)],
        env={"HOME": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        address = f"http://127.0.0.1:{port}/"
        wait_for(lambda: answer(address) == "hello")
        yield process.pid, address
        process.kill()


def answer(address: str) -> str | None:
    try:
        return httpx2.get(address).text
    except httpx2.ConnectError:
        return None


def mapped_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile:")) / 1024


def test_pages_of_the_start_are_freed(caddy: tuple[int, str]) -> None:
    pid, address = caddy
    before = mapped_mb(pid)
    advised = program_pages.drop(pid)
    after = mapped_mb(pid)
    assert answer(address) == "hello"
    if os.geteuid() == 0:
        assert advised > 1_000_000
        assert after < before / 2
    else:  # An ordinary user may not advise the kernel about another process.
        assert advised == 0


def test_a_request_reads_the_pages_that_it_needs(caddy: tuple[int, str]) -> None:
    pid, address = caddy
    program_pages.drop(pid)
    dropped = mapped_mb(pid)
    program_pages.request_once(("127.0.0.1", int(address.rsplit(":", 1)[1].rstrip("/"))))
    assert mapped_mb(pid) >= dropped


def test_a_process_that_has_ended_is_left_out() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert program_pages.drop(process.pid) == 0
    program_pages.request_once(("127.0.0.1", free_port()))
