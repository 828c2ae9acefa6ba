"""Start, settings and stop of the edge process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port
from tests.runtime.edge.edge_process import environment, receive_all, running_edge, split

from moorage.platform import plan
from moorage.runtime.edge import main
from moorage.runtime.edge.calls.caps import Caps
from moorage.runtime.edge.spool import Room
from moorage.settings import load

MB = 2**20


def test_sigterm_ends_the_process_with_0_and_its_port_is_free() -> None:
    port = free_port()

    with running_edge(port) as process:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as idle:
            idle.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            idle.recv(65536)
            process.send_signal(signal.SIGTERM)
            rest = receive_all(idle)
            code = process.wait(timeout=10)

    assert (rest, code) == (b"", 0)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


def test_a_request_that_has_begun_is_finished_after_sigterm() -> None:
    port = free_port()

    with running_edge(port) as process, socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"GET /first HTTP/1.1\r\nHost: a\r\n\r\nGET /second HTTP/1.1\r\n")
        client.recv(65536)
        process.send_signal(signal.SIGTERM)
        wait_until_refused(port)
        client.sendall(b"Host: a\r\n\r\n")
        answer = receive_all(client)
        code = process.wait(timeout=10)

    status, headers, _ = split(answer)
    assert (status, headers["connection"], code) == (404, "close", 0)


def wait_until_refused(port: int) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=10).close()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            pass  # The listener closed while this connection was in its backlog.
        time.sleep(0.01)


def test_readiness_is_told_on_the_descriptor_that_was_named(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    env = environment(free_port(), str(tmp_path)) | {"MOORAGE_READY_FD": str(writer)}
    command = [sys.executable, "-m", "moorage.runtime.edge.main"]

    with subprocess.Popen(command, env=env, pass_fds=[writer], stdout=subprocess.PIPE) as process:
        os.close(writer)
        with open(reader, "rb") as pipe:
            told = pipe.read()
        process.terminate()
        printed, _ = process.communicate(timeout=10)

    assert told == b"ready\n"
    assert printed == b""


def test_a_taken_port_is_named_and_the_process_fails(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [sys.executable, "-m", "moorage.runtime.edge.main"]
        env = environment(port, str(tmp_path))
        result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)

    assert result.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr
    assert "Traceback" not in result.stderr


def test_defaults_are_those_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MOORAGE_")]:
        monkeypatch.delenv(name)
    settings = load()

    place = main.read_settings({"MOORAGE_HOST": ""})

    assert place == main.EdgeSettings(
        settings.host,
        settings.edge_port,
        settings.body_timeout_s,
        settings.data,
        settings.functions_url,
        settings.function_hosts_domain,
        settings.function_pool,
        settings.trusted_proxies,
        Caps(settings.function_instances, settings.organization_instances, settings.function_queue),
        Room(settings.function_spool_mb * MB, settings.disk_reserve_mb * MB),
    )


def test_every_setting_of_the_process_is_handed_to_it(tmp_path: Path) -> None:
    class Asked(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            names.add(name)
            return default

    names: set[str] = set()
    main.read_settings(Asked())

    assert "MOORAGE_FUNCTION_SPOOL_MB" in names
    given = plan.edge_environment(load(data=tmp_path), dict.fromkeys([*names, "MOORAGE_MASTER_KEY"], ""))
    assert names <= given.keys()
    assert "MOORAGE_MASTER_KEY" not in given


def test_the_process_does_not_carry_the_weight_of_the_settings() -> None:
    code = "import sys, moorage.runtime.edge.main; print(sorted({'pydantic', 'moorage.settings'} & set(sys.modules)))"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True).stdout

    assert loaded == "[]\n"
