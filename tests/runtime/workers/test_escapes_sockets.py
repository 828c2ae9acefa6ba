"""Escapes from a sandbox through sockets: the network, and the socket to the edge.

Tried from inside a function, as root and as an ordinary user.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.runtime.sandbox.sandbox_support import outside_address, serving
from tests.runtime.workers.invoker_support import MODES, Host, Lab, lab_on, node_lab_on, running

pytestmark = [
    pytest.mark.group("cells-escapes"),
    pytest.mark.boundary(
        "code-to-host", "A function reaches neither services of the host nor the edge except by its own answers."
    ),
]


# The network.


@contextmanager
def listening_everywhere(host_name: str) -> Iterator[tuple[int, str, list[Any]]]:
    """Listen on all addresses of the host and on an abstract socket, and count connects."""
    visits: list[Any] = []
    name = f"\0moorage-test-{host_name}-{os.getpid()}"
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        unix.bind(name)
        unix.listen()

        def serve(listener: socket.socket) -> None:
            while True:
                try:
                    visits.append(listener.accept()[1])
                except OSError:
                    return

        threads = [threading.Thread(target=serve, args=[each]) for each in (tcp, unix)]
        for thread in threads:
            thread.start()
        yield tcp.getsockname()[1], name[1:], visits
        for listener in (tcp, unix):
            listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def test_nothing_of_the_host_answers_a_function(host: Host, lab: Lab) -> None:
    code = """
    places = [(address, port) for address in args["addresses"] for port in args["ports"]]
    answer = {}
    for address, port in places:
        answer[f"{address} {port}"] = attempt(socket.create_connection, (address, port), 5)
    with socket.socket(socket.AF_UNIX) as unix:
        answer["abstract"] = attempt(unix.connect, "\\0" + args["name"])
    """

    with listening_everywhere(host.mode) as (port, name, visits):
        addresses = ["127.0.0.1", "127.0.0.53", "::1", "0.0.0.0", outside_address(), "169.254.169.254", "10.0.0.1"]
        ports = [port, host.port, 22]
        answers = lab.run(code, addresses=addresses, ports=ports, name=name)

    assert len(answers) == 22
    assert set(answers.values()) <= {"ECONNREFUSED", "EACCES"}
    assert visits == []


@pytest.mark.deep
def test_without_a_network_a_function_reaches_nothing_that_others_reach() -> None:
    address = outside_address()
    code = "answer = attempt(socket.create_connection, (args['address'], args['port']), 5)"

    for mode in MODES:
        with serving(address) as site, running(mode, MOORAGE_SANDBOX_ALLOW=address) as host:
            answers = [
                lab_on(host, network=network).run(code, address=address, port=site.port)
                for network in ("internet", "none")
            ]

        assert answers[0] == "done"
        assert answers[1] in {"ENOSYS", "EACCES", "ENETUNREACH"}
        assert len(site.visits) == 1


def test_datagrams_reach_nobody(host: Host, lab: Lab) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("0.0.0.0", 0))
        receiver.settimeout(0.2)
        port = receiver.getsockname()[1]
        code = """
        answer = []
        for address in args["addresses"]:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                answer.append(attempt(sender.sendto, b"x", (address, args["port"])))
        """

        answers = lab.run(code, addresses=["127.0.0.1", outside_address(), "169.254.169.254"], port=port)

        assert "ENETUNREACH" in answers
        with pytest.raises(TimeoutError):
            receiver.recv(1)


# The socket to the edge.


GARBAGE = {
    "random bytes": "os.urandom(4096)",
    "an endless frame": "b'\\xff' * 100_000",
    "an empty frame": "bytes(5)",
    "an answer to nobody": "(21).to_bytes(4, 'little') + bytes([18]) + b'\\xff' * 20",
    "a cut answer": "(3).to_bytes(4, 'little') + bytes([18, 1, 1])",
    "a kind that is none": "(2).to_bytes(4, 'little') + bytes([77, 1])",
    "that it is ready": "(1).to_bytes(4, 'little') + bytes([16])",
    "that its code is loaded, again": "(10).to_bytes(4, 'little') + bytes([17, 1]) + bytes(8)",
    "that its code cannot be loaded": "(10).to_bytes(4, 'little') + bytes([17, 0]) + bytes(8)",
    "late lines of nobody": "(33).to_bytes(4, 'little') + bytes([19]) + b'\\xff' * 32",
}


@pytest.mark.usefixtures("is_healthy")
@pytest.mark.parametrize("sent", GARBAGE)
def test_garbage_for_the_edge_fails_that_call_alone(host: Host, lab: Lab, sent: str) -> None:
    bad = lab_on(host, timeout_ms=5000)
    others_before = lab.run("answer = os.getpid()")

    told = bad.error(f"edge_socket().sendall({GARBAGE[sent]})\ntime.sleep(60)")

    assert told == "the function's process sent an invalid frame"
    assert lab.run("answer = os.getpid()") == others_before
    assert bad.run("answer = 'fine'") == "fine"
    assert len([record for record in host.records() if record.function_id == bad.number]) == 2


@pytest.mark.usefixtures("is_healthy")
def test_an_answer_that_a_function_forges_is_no_more_than_its_own(host: Host, lab: Lab) -> None:
    code = """
    import struct
    body = b'"forged"'
    head = struct.pack("<IBIBHBIII", 21 + len(body), 18, args["id"], 0, 200, 2, 4_000_000_000, 0, 0)
    edge_socket().sendall(head + body)
    time.sleep(60)
    """

    told = host.call(lab_on(host, timeout_ms=2000).number, lab.params(code, id=1))

    assert (told["status"], told["result"]) == ("success", "forged")
    assert told["durationMs"] < 2000
    assert next(each.duration_us for each in host.records() if each.activation == told["activationId"]) < 2_000_000


@pytest.mark.usefixtures("is_healthy")
def test_an_error_message_that_a_function_forges_is_cut(host: Host) -> None:
    lab = lab_on(host)
    code = """
    import struct
    body = b"e" * 5_000_000
    edge_socket().sendall(struct.pack("<IBIBHBIII", 21 + len(body), 18, 1, 1, 0, 2, 0, 0, 0) + body)
    time.sleep(60)
    """

    assert len(lab.error(code)) <= 10_000


@pytest.mark.usefixtures("is_healthy")
def test_a_function_that_closes_every_descriptor_fails_alone(host: Host) -> None:
    lab = lab_on(host)

    told = lab.error("os.closerange(0, 1024)")

    assert "ended" in told
    assert lab.run("answer = 'fine'") == "fine"


@pytest.mark.usefixtures("is_healthy")
def test_descriptors_sent_to_the_edge_are_closed(host: Host) -> None:
    lab = lab_on(host, timeout_ms=5000)
    count = len(os.listdir(f"/proc/{host.edge.pid}/fd"))
    code = "socket.send_fds(edge_socket(), [bytes(64)], [os.open('/dev/null', 0) for _ in range(50)]); time.sleep(60)"

    told = lab.error(code)

    assert told == "the function's process sent an invalid frame"
    assert len(os.listdir(f"/proc/{host.edge.pid}/fd")) < count + 25


@pytest.mark.usefixtures("is_healthy")
def test_node_cannot_misuse_its_socket_either(host: Host) -> None:
    node = node_lab_on(host, timeout_ms=5000)
    code = """
    const fs = require('fs')
    for (const name of fs.readdirSync('/proc/self/fd')) {
      try {
        if (fs.readlinkSync('/proc/self/fd/' + name).startsWith('socket:')) fs.writeSync(+name, Buffer.alloc(999, 255))
      } catch {}
    }
    await new Promise(() => setTimeout(() => {}, 60000))
    """

    told = node.error(code)

    assert told == "the function's process sent an invalid frame"
    assert node.run("return 'fine'") == "fine"
