"""Run in its own network namespace: calls a server on a public address of the machine itself.

Prints a JSON object with the result of each call.
"""

import asyncio
import fcntl
import json
import os
import socket
import struct

from tests.core.net.outbound_servers import always, answer, serve

from moorage.core.net.calls import OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.own_networks import OwnNetworks
from moorage.core.net.targets import TargetPolicy, TargetRefused
from moorage.runtime.sandbox import syscalls

PUBLIC = "203.0.113.7"
_SIOCSIFFLAGS, _SIOCSIFADDR = 0x8914, 0x8916
_IFF_UP = 1


def enter_namespace() -> None:
    own_user = 0 if os.geteuid() == 0 else syscalls.CLONE_NEWUSER
    syscalls.unshare(own_user | syscalls.CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))


def add_address(address: str) -> None:
    """Add an address to an interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(control, _SIOCSIFADDR, request)


async def call(policy: TargetPolicy, port: int, host: str = PUBLIC) -> str:
    async with GuardedClient(policy, own=OwnNetworks(lifetime_s=0)) as client:
        return await send(client, port, host)


async def send(client: GuardedClient, port: int, host: str = PUBLIC) -> str:
    try:
        return str((await client.request("GET", f"http://{host}:{port}/", timeout_s=10)).status)
    except TargetRefused as refused:
        return f"refused: {refused}"
    except OutboundError as error:
        return f"failed: {error.phase}"


async def main() -> None:
    enter_namespace()
    client = GuardedClient(TargetPolicy(), own=OwnNetworks(lifetime_s=0))
    results = {"before": await send(client, 9)}
    add_address(PUBLIC)
    async with serve(always(answer(body=b"inside")), host=PUBLIC) as server:
        port = server.port
        results["after"] = await send(client, port)
        results["mapped"] = await call(TargetPolicy(), port, f"[::ffff:{PUBLIC}]")
        results["other port"] = await call(TargetPolicy(public_ports=frozenset({port + 1})), port)
        results["unseen"] = str(server.connections)
        results["public port"] = await call(TargetPolicy(public_ports=frozenset({port})), port)
        results["loopback allowed"] = await call(TargetPolicy(allow_loopback=True), port)
    await client.close()
    print(json.dumps(results))


if __name__ == "__main__":
    asyncio.run(main())
