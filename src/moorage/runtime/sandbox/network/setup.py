"""The network of a sandbox, seen from the process that becomes one and from the process that starts it.

A sandbox has a network namespace with a loopback interface only. The seccomp filter sends each `connect` to the
supervisor (`supervisor.py`), which also answers the resolver on 127.0.0.1. The child makes the resolver's sockets
before it drops its capabilities, and passes them on with the filter's listener.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from moorage.runtime.sandbox.network.policy import NetworkPolicy

# An address for "this host" that IANA set aside (RFC 7600). Resolvers ask for IPv4 addresses only on a machine that has
# one besides loopback.
OWN_ADDRESS = "192.0.0.8"
RESOLVER_ADDRESS = "127.0.0.1"
RESOLVER_PORT = 53

_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR = 0x8916
_SIOCSIFNETMASK = 0x891C
_IFF_UP_AND_RUNNING = 0x41
_HEAD = struct.Struct("<IB")
_READ_BYTES = 65536
_MOST_DESCRIPTORS = 64


def environment() -> dict[str, str]:
    """Return the environment of the supervisor's own process: what it takes to find our modules, and no more."""
    env = {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    return env | {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}


def start_supervisor(*, is_quiet: bool = False) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a supervisor; return its process, and the socket over which sandboxes are handed to it."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-m", "moorage.runtime.sandbox.network.supervisor", str(theirs.fileno())],
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if is_quiet else None,
        stderr=subprocess.DEVNULL if is_quiet else None,
        env=environment(),
    )
    theirs.close()
    return process, ours


def prepare_namespace() -> None:
    """Bring up loopback in a fresh network namespace. The caller has just unshared it and still has its rights."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = struct.pack("16sH14x", b"lo", _IFF_UP_AND_RUNNING)
        fcntl.ioctl(control, _SIOCSIFFLAGS, flags)
        fcntl.ioctl(control, _SIOCSIFADDR, _interface_request(OWN_ADDRESS))
        fcntl.ioctl(control, _SIOCSIFNETMASK, _interface_request("255.255.255.255"))


def _interface_request(address: str) -> bytes:
    return struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(address))


def make_resolver_sockets() -> tuple[socket.socket, socket.socket]:
    """Open the resolver's two doors in this namespace: a datagram socket and a listening stream socket."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    for one in (udp, tcp):
        one.bind((RESOLVER_ADDRESS, RESOLVER_PORT))
    tcp.listen(16)
    return udp, tcp


def hand_over(
    channel: socket.socket,
    cell_id: int,
    notify_fd: int,
    udp: socket.socket | int,
    tcp: socket.socket | int,
    policy: NetworkPolicy | None = None,
) -> None:
    """Send a sandbox's descriptors over a unix stream socket. They stay open here, and the sender closes them.

    A message is `u32 length, u8 number of descriptors`, then the JSON text of that length.
    """
    policy = policy or NetworkPolicy()
    rules = {"allow": policy.allow, "block": policy.block, "outside": policy.outside, "doors": policy.doors}
    body = json.dumps({"add": cell_id, "policy": rules}).encode()
    fds = [one if isinstance(one, int) else one.fileno() for one in (notify_fd, udp, tcp)]
    socket.send_fds(channel, [_HEAD.pack(len(body), len(fds)) + body], fds)


@dataclass(frozen=True, slots=True)
class HandOver:
    """What the supervisor needs of a sandbox. The descriptors belong to whoever has received it."""

    cell_id: int
    policy: NetworkPolicy
    notify_fd: int
    udp_fd: int
    tcp_fd: int


class Inbox:
    """The receiving end of hand-overs."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._bytes = b""
        self._fds: deque[int] = deque()

    def read(self) -> list[HandOver] | None:
        """Read what has come; None when the other side has gone. A broken message is a `ValueError`."""
        data, fds, _, _ = socket.recv_fds(self._channel, _READ_BYTES, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        self._fds.extend(fds)
        self._bytes += data
        return list(self._whole()) if data else None

    def _whole(self) -> Iterator[HandOver]:
        while len(self._bytes) >= _HEAD.size:
            length, count = _HEAD.unpack_from(self._bytes)
            end = _HEAD.size + length
            if len(self._bytes) < end or len(self._fds) < count:
                return
            body, self._bytes = self._bytes[_HEAD.size : end], self._bytes[end:]
            yield _parse(body, [self._fds.popleft() for _ in range(count)])


def _parse(body: bytes, fds: list[int]) -> HandOver:
    message = json.loads(body)
    rules = message.get("policy") or {}
    allow, block, doors = (tuple(rules.get(name, ())) for name in ("allow", "block", "doors"))
    policy = NetworkPolicy(allow, block, rules.get("outside", True), doors)
    notify_fd, udp_fd, tcp_fd = fds
    return HandOver(message["add"], policy, notify_fd, udp_fd, tcp_fd)
