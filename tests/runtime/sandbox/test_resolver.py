"""DNS inside a sandbox: queries on its loopback, answers from the resolvers of the host."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.sandbox.sandbox_support import outside_address, python_inside, running_netd, serving

from moorage.runtime.sandbox.network.policy import NetworkPolicy
from moorage.runtime.sandbox.network.resolver import Upstream, failure, question_end

# The tests share one address and port, which two workers cannot use at the same time.
pytestmark = pytest.mark.group("resolver")

LOOKUP = """
def look(name):
    try:
        return sorted({found[4][0] for found in socket.getaddrinfo(name, 80, socket.AF_INET)})
    except socket.gaierror as error:
        return socket.EAI_AGAIN == error.errno and "again" or "unknown"
tell([look(name) for name in argv])
"""


def records(*addresses: str) -> bytes:
    return b"".join(b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton(address) for address in addresses)


def reply(query: bytes, addresses: tuple[str, ...], *, truncated: bool = False, code: int = 0) -> bytes:
    end = question_end(query)
    flags = bytes([0x81 | (2 if truncated else 0), 0x80 | code])
    counts = b"\0\1" + len(addresses).to_bytes(2, "big") + bytes(4)
    return query[:2] + flags + counts + query[12:end] + records(*addresses)


def name_of(query: bytes) -> str:
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    return ".".join(labels)


def answer(query: bytes, *, stream: bool) -> bytes:
    name, is_ipv4 = name_of(query), query[(question_end(query) or 0) - 4 :][:2] == b"\0\1"
    if name == "many.example":
        many = tuple(f"203.0.113.{number}" for number in range(1, 101))
        return reply(query, many) if stream else reply(query, (), truncated=True)
    known = {"site.example": (outside_address(),), "inner.example": ("127.0.0.1",), "private.example": ("10.0.0.1",)}
    return reply(query, known.get(name, ()) if is_ipv4 else (), code=0 if name in known else 3)


@contextlib.contextmanager
def name_server(address: str) -> Iterator[list[str]]:
    """Serve DNS on the host's loopback, over UDP and TCP; yield the list of queried names."""
    asked: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.create_server((address, 53)) as tcp:
        udp.bind((address, 53))
        threads = [threading.Thread(target=_serve_datagrams, args=(udp, asked))]
        threads.append(threading.Thread(target=_serve_streams, args=(tcp, asked)))
        for thread in threads:
            thread.start()
        try:
            yield asked
        finally:
            udp.connect(udp.getsockname())  # Only a connected socket can be shut down, which wakes up its reader.
            udp.shutdown(socket.SHUT_RDWR)
            tcp.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def _serve_datagrams(udp: socket.socket, asked: list[str]) -> None:
    while True:
        query, client = udp.recvfrom(4096)
        if not query:
            return
        asked.append(name_of(query))
        udp.sendto(
            b"\0\0" + answer(query, stream=False)[2:], client
        )  # A forged answer, with another query ID, comes first.
        udp.sendto(answer(query, stream=False), client)


def _serve_streams(tcp: socket.socket, asked: list[str]) -> None:
    while True:
        try:
            client, _ = tcp.accept()
        except OSError:
            return
        with client:
            query = client.recv(4096)[2:]
            asked.append(name_of(query))
            found = answer(query, stream=True)
            client.sendall(len(found).to_bytes(2, "big") + found)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "resolv.conf"
    path.write_text("# of the host\nsearch example\nnameserver 127.0.0.153\noptions edns0\n")
    return path


def test_a_sandbox_finds_names_through_the_resolver_of_the_host(conf: Path) -> None:
    with name_server("127.0.0.153"), running_netd(conf) as netd:
        found = python_inside(netd, LOOKUP, "site.example", "nobody.example")

    assert found == [[outside_address()], "unknown"]


def test_an_answer_that_does_not_fit_a_datagram_comes_over_a_stream(conf: Path) -> None:
    with name_server("127.0.0.153"), running_netd(conf) as netd:
        (found,) = python_inside(netd, LOOKUP, "many.example")

    assert len(found) == 100


def test_a_name_does_not_open_an_address_that_is_closed(conf: Path) -> None:
    code = """
    import urllib.request
    def fetch(name):
        try:
            return urllib.request.urlopen(f"http://{name}:{argv[0]}/").read().decode()
        except OSError as error:
            return errno.errorcode[error.reason.errno]
    tell([fetch(name) for name in ("site.example", "inner.example", "private.example")])
    """
    allowed = NetworkPolicy(allow=(outside_address(),))
    with name_server("127.0.0.153"), running_netd(conf) as netd, serving(outside_address()) as site:
        answers = python_inside(netd, code, site.port, policy=allowed)

    assert answers == ["hello", "ECONNREFUSED", "EACCES"]


def test_the_next_resolver_is_asked_when_one_does_not_answer(conf: Path) -> None:
    conf.write_text("nameserver 127.0.0.154\nnameserver 127.0.0.153\n")
    with name_server("127.0.0.153"), running_netd(conf) as netd:
        found = python_inside(netd, LOOKUP, "site.example")

    assert found == [[outside_address()]]


def test_without_any_resolver_the_answer_is_to_try_again(conf: Path) -> None:
    conf.write_text("nameserver 127.0.0.154\n")
    with running_netd(conf) as netd:
        found = python_inside(netd, LOOKUP, "site.example")

    assert found == ["again"]


def test_the_resolvers_are_read_again_when_their_file_changes(conf: Path) -> None:
    upstream = Upstream(conf)
    first = upstream.servers()

    conf.write_text("nameserver 192.0.2.53\nnameserver 2001:db8::53\n")
    os.utime(conf, ns=(1, 1))
    second = upstream.servers()
    conf.unlink()

    assert (first, second) == (["127.0.0.153"], ["192.0.2.53", "2001:db8::53"])
    assert upstream.servers() == second


def test_a_sandbox_without_a_network_asks_nobody(conf: Path) -> None:
    with name_server("127.0.0.153") as asked, running_netd(conf) as netd:
        found = python_inside(netd, LOOKUP, "site.example", policy=NetworkPolicy(outside=False))

    assert asked == []
    assert found in (["again"], ["unknown"])


def test_what_is_no_question_is_not_passed_on(conf: Path) -> None:
    code = """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for junk in (b"", b"x", bytes(12), b"\\1\\2\\1\\0\\0\\1" + bytes(6) + b"\\xff" * 50, bytes(5000)):
        sock.sendto(junk, ("127.0.0.1", 53))
    stream = socket.create_connection(("127.0.0.1", 53))
    stream.sendall(b"\\0\\5hello")
    tell([stream.recv(10).decode(), socket.getaddrinfo("site.example", 80, socket.AF_INET)[0][4][0]])
    """
    with name_server("127.0.0.153") as asked, running_netd(conf) as netd:
        found = python_inside(netd, code)

    assert found == ["", outside_address()]
    assert set(asked) == {"site.example"}


def test_a_failure_repeats_the_question_and_its_number() -> None:
    query = b"\x12\x34\1\0\0\1\0\0\0\0\0\1\4site\7example\0\0\1\0\1" + b"\0\0\x29\4\xd0" + bytes(6)

    made = failure(query, 2)

    assert made == b"\x12\x34\x81\x82\0\1" + bytes(6) + b"\4site\7example\0\0\1\0\1"


def test_connections_are_made_while_names_are_asked_for(conf: Path) -> None:
    code = """
    import concurrent.futures, urllib.request
    def fetch(number):
        return urllib.request.urlopen(f"http://site.example:{argv[0]}/").read().decode()
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        tell(list(threads.map(fetch, range(64))))
    """
    allowed = NetworkPolicy(allow=(outside_address(),))
    with name_server("127.0.0.153"), running_netd(conf) as netd, serving(outside_address()) as site:
        answers = python_inside(netd, code, site.port, policy=allowed)

    assert answers == ["hello"] * 64
