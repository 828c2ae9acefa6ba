"""Network access of an app: itself, its egress rules and the internet, but nothing else of this machine."""

from __future__ import annotations

import socket
import textwrap

from tests.runtime.engines.engine_support import PRELUDE, Engine
from tests.runtime.sandbox.sandbox_support import outside_address, serving
from tests.runtime.workers.invoker_support import until


def test_an_app_reaches_itself_at_its_port_by_any_of_its_names(engine: Engine) -> None:
    app = engine.lab()

    answer = app.run(
        """
        answer = []
        for name in ("127.0.0.1", "::1", "localhost", "app", "0.0.0.0"):
            with socket.create_connection((name, PORT), 5) as own:
                own.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
                answer.append(own.recv(15).decode())
        """
    )

    assert answer == ["HTTP/1.0 200 OK"] * 5
    app.stop()


def test_neither_the_host_nor_another_app_is_reached(engine: Engine) -> None:
    app, other = engine.lab(), engine.lab()
    with serving("127.0.0.1") as site:
        answer = app.run(
            f"""
            places = [("127.0.0.1", {other.port}), ("127.0.0.1", {site.port}), ("::1", {site.port}),
                      ("::ffff:127.0.0.1", {site.port}), ("{outside_address()}", {site.port})]
            answer = [attempt(connected, *place) for place in places]
            """
        )

        assert answer == ["ECONNREFUSED"] * 4 + ["EACCES"]
        assert site.visits == []
    app.stop()
    other.stop()


def test_an_egress_rule_allows_just_one_port_of_the_host(engine: Engine) -> None:
    with serving("127.0.0.1") as linked, serving("127.0.0.1") as other:
        app = engine.lab(doors=[f"127.0.0.1:{linked.port}"])

        answer = app.run(
            f"answer = [attempt(connected, '127.0.0.1', port) for port in ({linked.port}, {other.port})]"
            f" + [attempt(connected, '::1', {linked.port})]"
        )

        assert answer == ["done", "ECONNREFUSED", "ECONNREFUSED"]
        until(lambda: linked.visits)  # The server's thread records a visit after it has accepted the connection.
        assert len(linked.visits) == 1
        app.stop()


def test_other_ports_of_an_app_stay_inside(engine: Engine) -> None:
    app = engine.lab()

    port = app.run(
        """
        kept = socket.create_server(("0.0.0.0", 0))
        __builtins__["kept"] = kept
        connected("127.0.0.1", kept.getsockname()[1])
        answer = kept.getsockname()[1]
        """
    )

    with socket.socket() as outside:
        outside.settimeout(5)
        assert outside.connect_ex(("127.0.0.1", port)) != 0
    app.stop()


def test_a_connection_that_came_in_can_neither_listen_nor_hold_a_port_of_the_host(engine: Engine) -> None:
    code = """
    listener = socket.create_server(("127.0.0.1", PORT))
    client = socket.create_connection(("127.0.0.1", PORT), 5)
    came, _ = listener.accept()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
    client.close()
    while came.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 7:  # closed
        time.sleep(0.01)
    print(attempt(came.bind, ("127.0.0.1", 0)), attempt(came.listen), attempt(listener.listen), flush=True)
    time.sleep(600)
    """
    app = engine.start({"main.py": PRELUDE + textwrap.dedent(code)}, [engine.python, "main.py"])

    told = until(lambda: [line for line in app.log() if line.startswith("o ")])

    assert told == ["o EINVAL EACCES done"]
    app.stop(grace_s=0.0)


def test_an_app_serves_itself_over_unix_sockets(engine: Engine) -> None:
    app = engine.lab()

    answer = app.run(
        """
        answer = []
        os.chdir("/tmp")
        os.umask(0o077)
        for name in ("/tmp/one.sock", "two.sock", "\\0three", "/tmp/../tmp/four.sock"):
            with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
                server.bind(name)
                server.listen()
                client.connect(name)
                answer.append("served")
        answer.append(oct(os.stat("one.sock").st_mode)[-3:])
        answer.append(os.stat("one.sock").st_uid == os.getuid())
        answer += [attempt(socket.socket(socket.AF_UNIX).bind, path) for path in ("/tmp/one.sock", "/bin/x", "/no/x")]
        """
    )

    assert answer == ["served"] * 4 + ["700", True, "EADDRINUSE", "EROFS", "ENOENT"]
    app.stop()


def test_a_server_that_is_closed_and_opened_again_is_reached_again(engine: Engine) -> None:
    code = """
    import os, socket
    for number in range(3):
        server = socket.create_server(("0.0.0.0", int(os.environ["PORT"])))
        client, _ = server.accept()
        client.recv(4096)
        client.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n%d" % number)
        client.close()
        server.close()
    """
    app = engine.start({"main.py": code}, [engine.python, "main.py"])

    assert [app.get() for _ in range(3)] == ["0", "1", "2"]
    app.stop()
