"""Apps that listen on a port of their own choice instead of PORT."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ports import free_port
from tests.runtime.engines.engine_support import LAB, Engine, Replica
from tests.runtime.workers.invoker_support import until

from moorage.runtime.engines import port_choice

FIXED = LAB.replace('os.environ["HOST"], int(os.environ["PORT"])', "sys.argv[1], int(sys.argv[2])")
# Listens on the ports that its arguments name, and serves on the last one.
SEVERAL = (
    """
import socket, sys
kept = [socket.create_server(("0.0.0.0", int(port))) for port in sys.argv[3:]]
"""
    + FIXED
)
# Listens with IPv6 on all addresses, and tells the address of its socket and of its client.
IPV6 = """
import os, socket, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/end":
            os._exit(1)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{len(server.socket.getsockname())} {self.client_address[0]}".encode())

server = Server(("::", int(sys.argv[1] if sys.argv[1:] else os.environ["PORT"])), Handler)
server.serve_forever()
"""


def start(engine: Engine, *argv: str, code: str = FIXED, **changed: Any) -> Replica:
    """Start an app; its port is known when it listens."""
    app = engine.start({"app.py": code}, [engine.python, "app.py", *argv], **changed)
    app.started = app.look()
    return app


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1"])
def test_the_only_port_that_an_app_listens_on_becomes_its_port(engine: Engine, address: str) -> None:
    app = start(engine, address, "3000")

    inside = app.run("answer = [attempt(connected, '127.0.0.1', port) for port in (3000, PORT)]")

    assert "hello" in app.get()
    assert app.started["other_port"] == 3000
    assert inside == ["done", "ECONNREFUSED"]
    assert any("port 3000 and not on PORT: requests go to 3000" in line for line in app.log())
    app.stop()


@pytest.mark.parametrize("argv", [[], ["3000"]], ids=["PORT", "another port"])
def test_an_app_that_listens_with_ipv6_gets_addresses_of_ipv6(engine: Engine, argv: list[str]) -> None:
    app = start(engine, *argv, code=IPV6)
    before = app.get()

    with pytest.raises((ConnectionError, OSError)):
        app.get("/end")

    app.until(restarts=1, is_listening=True)
    assert (before, app.get()) == ("4 ::ffff:127.0.0.1", before)
    app.stop()


def test_its_port_survives_a_crash_and_a_new_control_process(engine: Engine) -> None:
    app = start(engine, "0.0.0.0", "80")
    port = app.port
    with pytest.raises((ConnectionError, OSError)):
        app.run("os._exit(3)")
    app.until(restarts=1, is_listening=True)

    engine.end(kill=True)
    engine.ask("adopt", tokens={app.key: app.spec["token"]})

    state = app.until(is_listening=True)
    assert (state["port"], state["other_port"]) == (port, 80)
    assert "hello" in app.get()
    app.stop()


def test_of_several_ports_a_common_one_is_preferred_and_the_log_says_how_to_choose(engine: Engine) -> None:
    app = start(engine, "0.0.0.0", "8000", "2000", code=SEVERAL)

    assert app.started["other_port"] == 8000
    assert "hello" in app.get()
    assert any("ports 2000, 8000" in line and "set the variable PORT" in line for line in app.log())
    app.stop()


def test_the_value_of_the_users_port_is_honoured_inside(engine: Engine) -> None:
    app = engine.lab(inside_port=8765)

    answer = app.run("answer = [PORT, attempt(connected, 'localhost', 8765)]")

    assert answer == [8765, "done"]
    assert app.look()["other_port"] == 0
    app.stop()


def test_an_app_that_opens_another_port_first_keeps_its_own(engine: Engine) -> None:
    code = "import socket\nkept = socket.create_server(('0.0.0.0', 9090))\n" + LAB
    app = engine.start({"app.py": code}, [engine.python, "app.py"])

    assert app.look()["other_port"] == 0
    assert "hello" in app.get()
    assert app.run("answer = attempt(connected, '127.0.0.1', 9090)") == "done"
    app.stop()


def test_without_a_sandbox_the_ports_of_its_processes_are_found(engine: Engine) -> None:
    port = free_port()
    app = start(engine, "127.0.0.1", str(port), is_boxed=False)

    assert (app.port, app.started["other_port"]) == (port, port)
    assert "hello" in app.get()
    app.stop()
    until(lambda: app.state() is None)


@pytest.mark.parametrize(
    ("ports", "chosen"), [([9229, 3000], 3000), ([8080, 8000], 8000), ([7000, 6000], 6000), ([5555], 5555)]
)
def test_the_preferred_port_is_common_or_the_lowest(ports: list[int], chosen: int) -> None:
    assert port_choice.preferred(ports) == chosen
