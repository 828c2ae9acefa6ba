"""Memory that unfinished requests of clients without a credential take from the edge.

Each of a thousand clients declares a body of 6 MB and sends all of it but one byte, as fast as the gateway takes it: to
a function that does not exist and to one that does, from one address and from many. Meanwhile others call functions.
"""

from __future__ import annotations

import http.client
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench import function_platform
from bench.figures import Figure, at_most
from bench.function_platform import HELLO, Platform

MB = 2**20
BAR = at_most(200)
NO_FAILURES = at_most(0)
BODY_BYTES = 6 * MB
PIECE = bytes(64 * 1024)
OTHER = "127.0.0.250"  # the address that ordinary calls come from
LARGE_CALL_BYTES = 5 * MB


@dataclass(frozen=True)
class Sizes:
    clients: int
    addresses: int
    flood_s: float  # for which the clients send, and then hold what they have sent
    settle_s: float  # after which memory has been returned


FULL = Sizes(clients=1000, addresses=100, flood_s=15, settle_s=10)
TINY = Sizes(clients=10, addresses=3, flood_s=0.5, settle_s=1.5)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    found: list[Figure] = []
    with function_platform.running(folder, pinned=False) as platform:
        platform.create("hello", "python", HELLO["python"])
        platform.wait_until_served(platform.path("hello"))
        for where, path in (("no function", platform.path("none")), ("a function", platform.path("hello"))):
            for addresses in (1, sizes.addresses):
                source = "one address" if addresses == 1 else f"{addresses} addresses"
                title = f"strangers, {sizes.clients} bodies to {where} from {source}"
                found += _measure(platform, title, path, addresses, sizes)
    return found


def _measure(platform: Platform, title: str, path: str, addresses: int, sizes: Sizes) -> list[Figure]:
    edge = platform.process("edge")
    before_mb = rss_mb(edge)
    with watched(edge) as memory, calling(platform) as calls, Flood(platform.edge_port, path) as flood:
        flood.open(sizes.clients, addresses)
        flood.send(sizes.flood_s)
    time.sleep(sizes.settle_s)
    print(f"{title}: {flood.sent_bytes / MB:.0f} MB sent, answers {flood.answers}, {calls.answered} calls", flush=True)
    for failure in calls.failures[:5]:
        print(f"{title}: FAILED: {failure}", flush=True)
    return [
        Figure(f"{title}: peak RSS", memory.peak_mb, "MB", before_mb, "before", bar=BAR),
        Figure(f"{title}: RSS afterwards", rss_mb(edge), "MB", before_mb, "before"),
        Figure(f"{title}: calls of others that failed", len(calls.failures), "", bar=NO_FAILURES),
    ]


class Flood:
    """Clients that send requests and never finish them."""

    def __init__(self, port: int, path: str, body_bytes: int = BODY_BYTES) -> None:
        self._port = port
        self._head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {body_bytes}\r\n\r\n".encode()
        self._body_bytes = body_bytes
        self._left: dict[socket.socket, int] = {}  # bytes of the body that each has still to send
        self._others: list[socket.socket] = []
        self.sent_bytes = 0
        self.answers: dict[int, int] = {}  # how many clients got which status

    def __enter__(self) -> Flood:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (*self._left, *self._others):
            sock.close()

    def open(self, clients: int, addresses: int) -> None:
        """Connect all clients, each from one of so many addresses of this machine, and send their headers."""
        for number in range(clients):
            sock = socket.socket()
            sock.bind((f"127.0.0.{2 + number % addresses}" if addresses > 1 else "127.0.0.1", 0))
            sock.settimeout(10)
            try:
                sock.connect(("127.0.0.1", self._port))
                sock.sendall(self._head)
            except OSError:
                sock.close()
                continue
            sock.setblocking(False)
            self._left[sock] = self._body_bytes - 1

    def send(self, seconds: float) -> None:
        """Send from all clients in turn until the sockets are full, so that the server buffers the data."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            is_idle = True
            for sock in list(self._left):
                is_idle &= not self._push(sock)
            if is_idle:
                time.sleep(0.02)

    def _push(self, sock: socket.socket) -> bool:
        """Send a piece; return whether anything was taken."""
        if select.select([sock], [], [], 0)[0]:
            self._hear(sock)
            return True
        try:
            sent = sock.send(PIECE[: self._left[sock]]) if self._left[sock] else 0
        except BlockingIOError:
            return False
        except OSError:
            self._end(sock, 0)
            return True
        self._left[sock] -= sent
        self.sent_bytes += sent
        return sent > 0

    def _hear(self, sock: socket.socket) -> None:
        with suppress(OSError):
            line = sock.recv(65536).partition(b"\r\n")[0].split()
            self._end(sock, int(line[1]) if len(line) > 1 else 0)
            return
        self._end(sock, 0)

    def _end(self, sock: socket.socket, status: int) -> None:
        self.answers[status] = self.answers.get(status, 0) + 1
        del self._left[sock]
        self._others.append(sock)


@dataclass
class Memory:
    peak_mb: float = 0.0


@contextmanager
def watched(pid: int) -> Iterator[Memory]:
    """Note the largest resident memory of a process while the block runs."""
    memory, is_over = Memory(), threading.Event()

    def watch() -> None:
        while not is_over.wait(0.05):
            memory.peak_mb = max(memory.peak_mb, rss_mb(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield memory
    finally:
        is_over.set()
        thread.join()


@dataclass
class Calls:
    answered: int = 0
    failures: list[str] = field(default_factory=list)


@contextmanager
def calling(platform: Platform) -> Iterator[Calls]:
    """Call a function from another address while the block runs, now and then with a large body."""
    calls, is_over = Calls(), threading.Event()

    def call() -> None:
        while not is_over.wait(0.1):
            body = bytes(LARGE_CALL_BYTES) if calls.answered % 10 == 9 else b'{"name": "harbor"}'
            status = post(platform.edge_port, platform.path("hello"), body, OTHER)
            calls.answered += 1
            if status != "200":
                calls.failures.append(status)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield calls
    finally:
        is_over.set()
        thread.join()


def post(port: int, path: str, body: bytes, source: str = "127.0.0.1") -> str:
    """Return the status of a call, or the error that it met."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(source, 0))
    try:
        connection.request("POST", path, body, {"Content-Type": "application/octet-stream"})
        answer = connection.getresponse()
        answer.read()
        return str(answer.status)
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    finally:
        connection.close()


def rss_mb(pid: int) -> float:
    with suppress(FileNotFoundError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0
