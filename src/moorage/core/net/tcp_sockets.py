"""Count the TCP sockets of this machine by local port and state."""

from __future__ import annotations

import errno
import re
import socket
import struct
from pathlib import Path

ESTABLISHED, LISTEN = 1, 10  # the kernel's TCP state numbers

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_DONE, _ERROR = 3, 2
_HEAD = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI")  # family, protocol, extensions, states
_WILDCARD_BYTES = 44  # addresses, interface and cookie: zero matches any


def count(port: int, state: int) -> int:
    """Count this machine's TCP sockets with a local port and state."""
    try:
        return sum(_count_by_netlink(family, port, state) for family in (socket.AF_INET, socket.AF_INET6))
    except OSError:
        pattern = rf"^ *\d+: \w+:{port:04X} \w+:\w+ {state:02X} "
        tables = [table for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")) if table.exists()]
        return sum(len(re.findall(pattern, table.read_text(), re.MULTILINE)) for table in tables)


def _count_by_netlink(family: int, port: int, state: int) -> int:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 1 << state) + struct.pack(">H", port) + bytes(2)
        body += bytes(_WILDCARD_BYTES)
        head = _HEAD.pack(_HEAD.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
        netlink.settimeout(1.0)
        netlink.send(head + body)
        sockets = 0
        while True:
            for kind in _message_types(netlink.recv(1 << 16)):
                if kind == _DONE:
                    return sockets
                if kind == _ERROR:
                    raise OSError(errno.EOPNOTSUPP, "the kernel does not support sock_diag")
                sockets += 1


def _message_types(data: bytes) -> list[int]:
    kinds = []
    while len(data) >= _HEAD.size:
        length, kind, *_ = _HEAD.unpack_from(data)
        kinds.append(kind)
        data = data[(length + 3) & ~3 :]
    return kinds
