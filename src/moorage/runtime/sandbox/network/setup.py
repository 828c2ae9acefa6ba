"""Network setup of a sandbox: its namespace and its descriptors.

A sandbox has a network namespace with a loopback interface only. The seccomp filter sends each `connect` to the
supervisor (`supervisor.py`), which also serves DNS on 127.0.0.1. The child creates the DNS sockets before it drops its
capabilities, and sends them to the supervisor with the filter's notify descriptor.
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

from moorage.core.kit.records import dataclass
from moorage.runtime.sandbox.network.policy import NetworkPolicy

# Reserved by IANA for "this host" (RFC 7600). Resolver libraries query IPv4 addresses only on a machine that has one
# besides loopback.
OWN_ADDRESS = "192.0.0.8"
RESOLVER_ADDRESS = "127.0.0.1"
RESOLVER_PORT = 53

_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR = 0x8916
_SIOCSIFNETMASK = 0x891C
_IFF_UP_AND_RUNNING = 0x41
_HEAD = struct.Struct("<IB")
_READ_BYTES = 65536
_MAX_DESCRIPTORS = 64


def environment() -> dict[str, str]:
    """Return the environment of helper processes: only the path of their modules."""
    env = {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    return env | {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}


def start_supervisor(*, is_quiet: bool = False) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a network supervisor; return its process, and the socket for `hand_over`."""
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
    """Bring up loopback in a new network namespace; needs its capabilities."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = struct.pack("16sH14x", b"lo", _IFF_UP_AND_RUNNING)
        fcntl.ioctl(control, _SIOCSIFFLAGS, flags)
        fcntl.ioctl(control, _SIOCSIFADDR, _interface_request(OWN_ADDRESS))
        fcntl.ioctl(control, _SIOCSIFNETMASK, _interface_request("255.255.255.255"))


def _interface_request(address: str) -> bytes:
    return struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(address))


def make_resolver_sockets() -> tuple[socket.socket, socket.socket]:
    """Create a UDP and a listening TCP socket for DNS in this namespace."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    for sock in (udp, tcp):
        sock.bind((RESOLVER_ADDRESS, RESOLVER_PORT))
    tcp.listen(16)
    return udp, tcp


def hand_over(
    channel: socket.socket,
    sandbox_id: int,
    notify_fd: int,
    udp: socket.socket | int,
    tcp: socket.socket | int,
    policy: NetworkPolicy | None = None,
) -> None:
    """Send copies of a sandbox's descriptors over a unix stream socket.

    A message is `u32 length, u8 number of descriptors`, then the JSON text of that length.
    """
    policy = policy or NetworkPolicy()
    rules = {"allow": policy.allow, "block": policy.block, "outside": policy.outside, "doors": policy.egress}
    body = json.dumps({"add": sandbox_id, "policy": rules}).encode()
    fds = [sock if isinstance(sock, int) else sock.fileno() for sock in (notify_fd, udp, tcp)]
    socket.send_fds(channel, [_HEAD.pack(len(body), len(fds)) + body], fds)


@dataclass(frozen=True, slots=True)
class SandboxSockets:
    """Descriptors and policy of a sandbox; the receiver owns the descriptors."""

    sandbox_id: int
    policy: NetworkPolicy
    notify_fd: int
    udp_fd: int
    tcp_fd: int


class SandboxReceiver:
    """Receives the messages of `hand_over`."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._bytes = b""
        self._fds: deque[int] = deque()

    def read(self) -> list[SandboxSockets] | None:
        """Read complete messages, None at end of file; raises ValueError if invalid."""
        data, fds, _, _ = socket.recv_fds(self._channel, _READ_BYTES, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        self._fds.extend(fds)
        self._bytes += data
        return list(self._complete_messages()) if data else None

    def _complete_messages(self) -> Iterator[SandboxSockets]:
        while len(self._bytes) >= _HEAD.size:
            length, count = _HEAD.unpack_from(self._bytes)
            end = _HEAD.size + length
            if len(self._bytes) < end or len(self._fds) < count:
                return
            body, self._bytes = self._bytes[_HEAD.size : end], self._bytes[end:]
            yield _parse(body, [self._fds.popleft() for _ in range(count)])


def _parse(body: bytes, fds: list[int]) -> SandboxSockets:
    message = json.loads(body)
    rules = message.get("policy") or {}
    allow, block, egress = (tuple(rules.get(name, ())) for name in ("allow", "block", "doors"))
    policy = NetworkPolicy(allow, block, rules.get("outside", True), egress)
    notify_fd, udp_fd, tcp_fd = fds
    return SandboxSockets(message["add"], policy, notify_fd, udp_fd, tcp_fd)
