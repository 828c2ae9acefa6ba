"""Host ports of apps."""

from __future__ import annotations

import socket

from moorage.core.net import tcp_sockets
from moorage.runtime.shim import ports


def test_a_port_is_given_once_even_when_nobody_listens_there_yet() -> None:
    taken = [ports.bind() for _ in range(50)]

    numbers = {sock.getsockname()[1] for sock in taken}

    assert len(numbers) == 50
    assert numbers <= set(ports.PORTS)
    for sock in taken:
        sock.close()


def test_one_can_listen_again_while_a_connection_is_still_open() -> None:
    with ports.bind() as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()) as client, listener.accept()[0] as came:
            listener.shutdown(socket.SHUT_RDWR)

            listener.listen()

            came.sendall(b"still here")
            assert client.recv(64) == b"still here"
            socket.create_connection(listener.getsockname()).close()


def test_connections_and_listeners_at_a_port_are_counted() -> None:
    with ports.bind() as listener:
        port = listener.getsockname()[1]
        listener.listen()
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            found = tcp_sockets.count(port, tcp_sockets.ESTABLISHED), tcp_sockets.count(port, tcp_sockets.LISTEN)

    assert found == (2, 1)
    assert tcp_sockets.count(port, tcp_sockets.LISTEN) == 0
