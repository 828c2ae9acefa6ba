"""Replicas on this machine: their port, restarts, adoption after a crash of the control process, and stop."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.engines.engine_support import LAB, Engine, engine_of, groups_of, lives
from tests.runtime.workers.invoker_support import MODE_PARAMS, MODES, give, until, user_of

NODE = """
require('http').createServer((request, response) => {
  if (request.url === '/die') process.exit(3)
  response.end('node ' + process.env.PORT)
}).listen(process.env.PORT, process.env.HOST)
"""
NODE_EVERYWHERE = """
require('http').createServer((request, response) => response.end('v6')).listen({port: process.env.PORT, host: '::'})
"""
ASYNCIO = """
import asyncio, os

async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 7\\r\\n\\r\\nasyncio")
    writer.close()

async def main():
    server = await asyncio.start_server(answer, os.environ["HOST"], int(os.environ["PORT"]))
    await server.serve_forever()

asyncio.run(main())
"""
# As gunicorn: one process listens, others accept the connections.
PREFORK = """
import os, socket, time

sock = socket.socket()
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
sock.bind(("0.0.0.0", int(os.environ["PORT"])))
sock.listen(5)
for number in range(3):
    if os.fork() == 0:
        while True:
            client, _ = sock.accept()
            client.recv(4096)
            client.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n%d" % os.getpid())
            client.close()
            time.sleep(0.05)
os.wait()
"""
# As servers with SO_REUSEPORT: each process listens by itself.
REUSE_PORT = """
import os, socket, time

for number in range(3):
    if os.fork() == 0:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("0.0.0.0", int(os.environ["PORT"])))
        sock.listen(5)
        while True:
            client, _ = sock.accept()
            client.recv(4096)
            client.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n%d" % os.getpid())
            client.close()
            time.sleep(0.05)
os.wait()
"""
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"not yet\\n"))
print("up", flush=True)
while True:
    time.sleep(1)
"""
POLITE = """
import os, signal, sys, time
def leave(*_):
    os.write(1, b"goodbye\\n")  # print may be running, and it cannot be entered again
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("up", flush=True)
while True:
    time.sleep(1)
"""


def test_a_node_server_is_reached_at_its_port(engine: Engine) -> None:
    app = engine.start({"index.js": NODE}, ["node", "index.js"])

    assert app.get() == f"node {app.port}"
    assert 20_000 <= app.port < 30_000
    app.stop()


def test_an_asyncio_server_is_reached_at_its_port(engine: Engine) -> None:
    app = engine.start({"main.py": ASYNCIO}, [engine.python, "main.py"])

    assert app.get() == "asyncio"
    app.stop()


def test_a_server_that_listens_on_ipv6_is_reached_as_well(engine: Engine) -> None:
    app = engine.start({"index.js": NODE_EVERYWHERE}, ["node", "index.js"])

    assert app.get() == "v6"
    app.stop()


@pytest.mark.parametrize("code", [PREFORK, REUSE_PORT], ids=["prefork", "reuse port"])
def test_several_processes_share_the_port(engine: Engine, code: str) -> None:
    app = engine.start({"main.py": code}, [engine.python, "main.py"])

    seen = until(lambda: answers if len(answers := {app.get() for _ in range(12)}) > 1 else None, "a second worker")

    assert seen
    app.stop()


def test_a_replica_is_told_its_port_and_nothing_of_the_platform(engine: Engine) -> None:
    app = engine.lab(env={"PATH": "/usr/bin:/bin", "GREETING": "ahoy"})

    env = app.run("answer = dict(os.environ)")

    assert env.pop("PORT") == str(app.port)
    assert env.pop("LC_CTYPE", "C.UTF-8") == "C.UTF-8"  # Python's own doing.
    assert env == {"PATH": "/usr/bin:/bin", "GREETING": "ahoy", "HOME": "/tmp", "HOST": "0.0.0.0"}
    app.stop()


def test_a_crash_is_made_good_at_once_and_who_comes_meanwhile_waits(engine: Engine) -> None:
    app = engine.start({"index.js": NODE}, ["node", "index.js"])
    with socket.create_connection(("127.0.0.1", app.port)) as last:
        last.sendall(b"GET /die HTTP/1.1\r\nHost: app\r\n\r\n")
        assert last.recv(1) == b""

    answer = app.get()

    state = app.until(restarts=1, is_listening=True)
    assert answer == f"node {app.port}"
    assert (state["phase"], state["exit_code"], state["reason"]) == ("running", 3, "it ended with exit code 3")
    assert "s ended: it ended with exit code 3; starting again" in app.log()
    app.stop()


def test_one_that_crashes_is_back_and_says_why(engine: Engine) -> None:
    app = engine.start({"lab.py": LAB}, [engine.python, "lab.py"])

    with contextlib.suppress(OSError, HTTPException):  # It may have answered before the signal came.
        app.run("os.kill(os.getpid(), signal.SIGSEGV)")
    state = app.until(restarts=1, is_listening=True)

    assert state["reason"] == "it was ended by SIGSEGV"
    assert "hello" in app.get()
    assert "s ended: it was ended by SIGSEGV; starting again" in app.log()
    app.stop()


def test_one_that_keeps_crashing_is_waited_for_longer_and_refuses_connections_meanwhile(engine: Engine) -> None:
    app = engine.start({"main.py": "raise SystemExit(7)"}, [engine.python, "main.py"], listens=False)

    app.until(restarts=3, phase="waiting")  # for four seconds, which is long enough to see it

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", app.port)).close()
    assert "s ended: it ended with exit code 7; starting again in 2 s" in app.log()
    app.stop()


def test_a_stopped_replica_has_time_to_end_by_itself(engine: Engine) -> None:
    app = engine.start({"main.py": POLITE}, [engine.python, "main.py"], listens=False)
    until(lambda: "o up" in app.log())

    app.stop(grace_s=30.0)

    assert app.log() == ["s started", "o up", "o goodbye", "s stopped"]
    assert app.state() is None
    assert not app.folder.exists()
    assert not lives(app.shim)


def test_a_stubborn_replica_is_ended(engine: Engine) -> None:
    app = engine.start({"main.py": STUBBORN}, [engine.python, "main.py"], listens=False)
    until(lambda: "o up" in app.log())
    inner = app.look()["app_pid"]

    app.stop(grace_s=0.3)

    assert "o not yet" in app.log()
    assert not lives(inner)
    assert not lives(app.shim)


def test_stopping_twice_and_looking_for_what_is_gone_is_no_error(engine: Engine) -> None:
    app = engine.lab()

    app.stop()
    app.stop()

    assert app.look() is None
    assert engine.ask("limit", key=app.key, cpu=1.0) is None
    assert app.key in engine.ask("changes")


def test_what_cannot_be_started_says_so(engine: Engine) -> None:
    spec = engine.make({}, ["no-such-program"])

    told = engine.ask("start", spec=spec)

    assert told == {"error": "it cannot be started: [Errno 2] No such file or directory: 'no-such-program'"}
    assert engine.ask("look", key=spec["key"]) is None


def test_a_look_tells_what_a_replica_uses(engine: Engine) -> None:
    app = engine.lab()
    app.run("sum(range(3_000_000)); answer = 1")

    with socket.create_connection(("127.0.0.1", app.port)), socket.create_connection(("127.0.0.1", app.port)):
        state: dict[str, Any] = until(lambda: seen if (seen := app.look())["connections"] == 2 else {})

    assert state["cpu_us"] > 10_000
    assert state["memory_bytes"] > 2**20
    assert os.readlink(f"/proc/{state['app_pid']}/exe") == engine.python
    app.stop()


@pytest.mark.parametrize("mode", MODE_PARAMS)
def test_replicas_outlive_a_control_plane_that_is_killed_and_are_adopted_by_token(mode: str) -> None:
    with engine_of(mode) as engine:
        kept, wrong, unknown = engine.lab(), engine.lab(), engine.lab()
        engine.end(kill=True)
        answer = kept.get()
        (engine.home / "run" / "shims" / "left").mkdir()

        engine.ask("adopt", tokens={kept.key: kept.spec["token"], wrong.key: "another"})

        assert set(engine.ask("states")) == {kept.key}
        assert kept.get() == answer
        assert kept.look()["pid"] == kept.shim
        until(lambda: not lives(wrong.shim) and not lives(unknown.shim))
        until(lambda: [path.name for path in (engine.home / "run" / "shims").iterdir()] == [kept.key])


def test_a_python_that_has_moved_is_found_where_a_virtual_environment_looks_for_it(engine: Engine) -> None:
    python = Path(engine.python)
    files = {"lab.py": LAB, ".venv/pyvenv.cfg": "home = /gone/python/bin\ninclude-system-site-packages = false\n"}
    binds = {"/gone/python": str(python.parent.parent)}
    spec = engine.make(files, [".venv/bin/python", "lab.py"], binds=binds)
    (Path(spec["release"]) / ".venv" / "bin").mkdir()
    (Path(spec["release"]) / ".venv" / "bin" / "python").symlink_to(f"/gone/python/bin/{python.name}")

    app = engine.begin(spec)

    assert app.run("answer = sys.prefix, sys.base_prefix") == ["/work/.venv", "/gone/python"]
    app.stop()


def test_a_number_that_now_belongs_to_another_process_is_never_ended(engine: Engine) -> None:
    folder = engine.home / "run" / "shims" / "r0"
    with subprocess.Popen(["sleep", "60"], **user_of(engine.mode)) as bystander:
        folder.mkdir(parents=True, exist_ok=True)
        give(folder.parent, engine.mode)
        (folder / "shim.json").write_text(json.dumps({"key": "r0", "pid": bystander.pid, "started": 1, "port": 20_000}))

        engine.ask("adopt", tokens={"r0": "token"})

        ended = bystander.poll()
        bystander.kill()
    assert ended is None
    assert not folder.exists()


def test_a_killed_shim_takes_its_app_along_and_nothing_is_left(engine: Engine) -> None:
    app = engine.lab()
    inner = app.look()["app_pid"]

    os.kill(app.shim, signal.SIGKILL)

    until(lambda: app.state() is None)
    until(lambda: not lives(inner))
    assert not app.folder.exists()
    engine.lab().stop()  # sweeps
    assert groups_of([app.shim]) == []


def test_a_shim_whose_folder_was_removed_ends_with_its_app() -> None:
    with engine_of(MODES[-1]) as engine:
        app = engine.lab()
        inner = app.look()["app_pid"]

        shutil.rmtree(app.folder)

        until(lambda: not lives(app.shim))
        until(lambda: not lives(inner))
        until(lambda: app.state() is None)
