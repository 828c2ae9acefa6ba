"""Servers: a fixed address, a folder without a size limit, and never root."""

from __future__ import annotations

import os
import resource
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port
from tests.runtime.engines.engine_support import APP_UID, LAB, Engine, Replica, lives
from tests.runtime.workers.invoker_support import python_of, until

from moorage.core.net import tcp_sockets

TIME_WAIT = 6
IDLE = ["sleep", "600"]
CHOOSY = """
import os, signal, time
def leave(number, _):
    os.write(1, b"left by " + signal.Signals(number).name.encode() + b"\\n")
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGINT, leave)
print("up", flush=True)
while True:
    time.sleep(1)
"""


# A server is process 1 in its sandbox: the kernel discards signals for which it has no handler.
SERVER = "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n" + LAB


def server(engine: Engine, **changed: Any) -> Replica:
    given = {"kind": "server", "port": free_port(), **changed}
    return engine.start({"lab.py": SERVER}, [engine.python, "lab.py"], **given)


def unboxed(engine: Engine, **changed: Any) -> Replica:
    """Start a server without a sandbox; its user must be able to execute the interpreter."""
    given = {"kind": "server", "is_boxed": False, "port": free_port(), **changed}
    return engine.start({"lab.py": LAB}, [python_of("user"), "lab.py"], **given)


def refusal(engine: Engine, **changed: Any) -> str:
    spec = engine.make({"lab.py": LAB}, [engine.python, "lab.py"], kind="server", **changed)
    told = engine.ask("start", spec=spec)
    return str(told["error"])


def test_a_server_is_found_at_the_port_it_was_given(engine: Engine) -> None:
    port = free_port()

    app = server(engine, port=port)

    assert app.port == port
    assert "hello" in app.get()
    app.stop()


def test_a_port_at_which_another_program_listens_is_refused(engine: Engine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        why = refusal(engine, port=port)

    assert why == f"it cannot be started: port {port} is in use by another program"


def test_a_port_is_kept_for_a_server_that_does_not_listen_yet(engine: Engine) -> None:
    app = engine.start({}, IDLE, listens=False, kind="server", port=free_port())

    why = refusal(engine, port=app.port)

    assert why == f"it cannot be started: port {app.port} is in use by another program"
    app.stop()


def test_a_port_is_free_again_at_once_although_connections_of_the_last_server_linger(engine: Engine) -> None:
    first = server(engine)
    with socket.create_connection(("127.0.0.1", first.port)) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        while client.recv(4096):
            pass  # The server closes the connection first, so its socket is in TIME_WAIT.
    first.stop()
    assert tcp_sockets.count(first.port, TIME_WAIT) > 0

    second = server(engine, port=first.port)

    assert "hello" in second.get()
    second.stop()


def test_a_port_is_free_again_at_once_after_a_shim_was_killed_with_connections_open(engine: Engine) -> None:
    first = server(engine)
    with socket.create_connection(("127.0.0.1", first.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        os.kill(first.shim, signal.SIGKILL)

        second = server(engine, port=first.port)

        assert "hello" in second.get()
    second.stop()
    until(lambda: not lives(first.shim))


def test_a_server_is_found_at_the_loopback_address_only(engine: Engine) -> None:
    app = server(engine)

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", app.port)).close()
    app.stop()


@pytest.mark.parametrize(
    ("given", "seen"), [({}, "SIGTERM"), ({"kind": "server", "stop_signal": signal.SIGINT}, "SIGINT")]
)
def test_a_replica_is_asked_to_end_by_its_own_signal(engine: Engine, given: dict[str, Any], seen: str) -> None:
    app = engine.start({"main.py": CHOOSY}, [engine.python, "main.py"], listens=False, **given)
    until(lambda: "o up" in app.log())

    app.stop(grace_s=30.0)

    assert f"o left by {seen}" in app.log()


def test_the_folder_of_a_server_is_never_turned_read_only_but_each_of_its_files_has_an_end(engine: Engine) -> None:
    volume = engine.volume()
    (Path(volume) / "much").write_bytes(bytes(3 << 20))
    app, usual = server(engine, volume=volume, disk_mb=4), engine.lab(volume=volume, disk_mb=1)

    written = [app.run(f"answer = attempt(write, '/data/more', {size} << 20)") for size in (3, 5)]
    unbounded = server(engine, volume=engine.volume())
    size = unbounded.run("import resource; answer = resource.getrlimit(resource.RLIMIT_FSIZE)")

    assert written == ["done", "EFBIG"]
    assert tuple(size) == resource.getrlimit(resource.RLIMIT_FSIZE)
    assert usual.run("answer = attempt(write, '/data/more')") == "EROFS"
    for each in (app, usual, unbounded):
        each.stop()


def test_a_server_is_never_root_and_its_files_are_those_of_its_user(engine: Engine) -> None:
    volume = engine.volume()
    app = server(engine, volume=volume)

    user, group, name = app.run(
        """
        import pwd
        write("/data/mine")
        answer = os.getuid(), os.getgid(), pwd.getpwuid(os.getuid()).pw_name
        """
    )

    inside = APP_UID if engine.mode == "root" else 1000
    assert (user, group, name) == (inside, inside, "app")
    assert (Path(volume) / "mine").stat().st_uid == Path(volume).stat().st_uid
    app.stop()


def test_a_server_has_no_rights_inside(engine: Engine) -> None:
    app = server(engine)

    status = app.run("answer = open('/proc/self/status').read()")

    assert "CapEff:\t0000000000000000" in status
    assert "CapBnd:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    app.stop()


def test_a_server_outside_of_a_sandbox_is_never_root_either_and_takes_its_port_itself(engine: Engine) -> None:
    volume = engine.volume()
    app = unboxed(engine, volume=volume)

    user, host, wrote = app.run(f"answer = os.getuid(), os.environ['HOST'], attempt(write, '{volume}/mine')")
    status = app.run("answer = open('/proc/self/status').read()")

    assert user == Path(volume).stat().st_uid != 0
    assert (host, wrote) == ("127.0.0.1", "done")
    assert "CapEff:\t0000000000000000" in status
    app.stop()


def test_where_the_platform_is_root_a_server_without_a_user_of_its_own_is_refused(engine: Engine) -> None:
    spec = engine.make({"lab.py": LAB}, [engine.python, "lab.py"], kind="server", uid=0)

    told = engine.ask("start", spec=spec)

    if engine.mode == "root":
        assert told == {"error": "it cannot be started: a server never runs as root, and its spec names no other user"}
    else:
        assert told["phase"] in ("starting", "running")
        engine.ask("stop", key=spec["key"], grace_s=1.0)
