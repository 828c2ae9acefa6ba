"""Client ports of the host sockets of sandboxes."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from ipaddress import ip_address

import pytest

from moorage.runtime.sandbox.network.callers import Address
from moorage.runtime.sandbox.network.host_sockets import HostPorts, SandboxPorts

CONNECTING = (0, errno.EINPROGRESS)


@pytest.mark.boundary(
    "tenant-to-tenant", "A sandbox that uses all its client ports towards an address leaves ports to other sandboxes."
)
def test_a_sandbox_that_uses_all_its_ports_towards_an_address_leaves_ports_to_another() -> None:
    host = HostPorts()
    host.ports = host.ports[:64]
    greedy, other = SandboxPorts(host), SandboxPorts(host)

    with ExitStack() as opened:
        server = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=128))
        like = opened.enter_context(socket.socket())
        number = server.getsockname()[1]
        address = Address(b"", socket.AF_INET, ip_address("127.0.0.1"), number)
        attempts = [greedy.start_connecting(like, address) for _ in range(400)]
        taken = [opened.enter_context(sock).getsockname()[1] for sock, code in attempts if code in CONNECTING]
        last, code = other.start_connecting(like, address)
        port = opened.enter_context(last).getsockname()[1]

    assert attempts[-1][1] in (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
    assert all(map(greedy.has, taken))
    assert code in CONNECTING
    assert other.has(port)
    assert port not in taken
