"""Network access of sandboxed programs: the internet and themselves, but not the host."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.sandbox.sandbox_support import (
    Netd,
    Site,
    outside_address,
    python_inside,
    readable_by_everyone,
    run_inside,
    running_netd,
    serving,
)

from moorage.core.net.own_networks import OwnNetworks, read_own_networks
from moorage.runtime.sandbox.network.policy import NetworkPolicy
from moorage.runtime.workers.runtimes import installed

ORDINARY_USER = 12345
FETCH = "import urllib.request\ntell(urllib.request.urlopen(argv[0]).read().decode())"


@pytest.fixture(scope="module")
def netd() -> Iterator[Netd]:
    with running_netd() as running:
        yield running


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server on a non-loopback address of the host: the internet, if a policy allows it."""
    with serving(outside_address()) as running:
        yield running


@pytest.fixture(scope="module")
def internet(site: Site) -> NetworkPolicy:
    return NetworkPolicy(allow=(site.address,))


def test_a_blocking_client_reaches_an_allowed_address(netd: Netd, site: Site, internet: NetworkPolicy) -> None:
    assert python_inside(netd, FETCH, site.url, policy=internet) == "hello"


def test_a_client_in_another_thread_or_a_child_process_reaches_it_as_well(
    netd: Netd, site: Site, internet: NetworkPolicy
) -> None:
    code = """
    import multiprocessing.pool, urllib.request
    def fetch(url):
        return urllib.request.urlopen(url).read().decode()
    with multiprocessing.pool.ThreadPool(4) as threads, multiprocessing.get_context("fork").Pool(2) as processes:
        tell([threads.map(fetch, argv * 8), processes.map(fetch, argv * 8)])
    """

    assert python_inside(netd, code, site.url, policy=internet) == [["hello"] * 8, ["hello"] * 8]


def test_an_asynchronous_client_reaches_many_times_at_once(netd: Netd, site: Site, internet: NetworkPolicy) -> None:
    code = """
    import asyncio
    async def fetch():
        reader, writer = await asyncio.open_connection(argv[0], int(argv[1]))
        writer.write(b"GET / HTTP/1.0\\r\\n\\r\\n")
        body = await reader.read()
        writer.close()
        return body[-5:].decode()
    async def main():
        return await asyncio.gather(*(fetch() for _ in range(50)))
    tell(asyncio.run(main()))
    """

    assert python_inside(netd, code, site.address, site.port, policy=internet) == ["hello"] * 50


def test_node_fetches_and_is_told_what_is_refused(netd: Netd, site: Site, internet: NetworkPolicy) -> None:
    code = """
    const [url, port] = process.argv.slice(1)
    async function main() {
        const texts = await Promise.all(Array.from({length: 20}, async () => (await fetch(url)).text()))
        const refused = await fetch(`http://10.0.0.1:${port}/`).catch(error => error.cause.code)
        console.log(JSON.stringify([new Set(texts).size, texts[0], refused]))
    }
    main()
    """
    nodes = [runtime.executable for name, runtime in installed().items() if name.startswith("nodejs:")]

    answers = [run_inside(netd, [str(node), "-e", code, site.url, str(site.port)], policy=internet) for node in nodes]

    assert answers
    assert all(json.loads(answer) == [1, "hello", "EACCES"] for answer in answers)


def test_an_address_of_the_host_is_refused_unless_the_operator_allows_it(netd: Netd, site: Site) -> None:
    before = len(site.visits)

    answer = python_inside(netd, "tell(attempt(socket.create_connection, argv[:2]))", site.address, site.port)

    assert answer == "EACCES"
    assert len(site.visits) == before


def test_private_and_special_addresses_are_refused_at_once(netd: Netd) -> None:
    targets = (
        *("10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254", "192.0.0.192", "224.0.0.1"),
        *("::ffff:10.0.0.1", "::ffff:169.254.169.254", "fd00::1", "fe80::1", "64:ff9b::a00:1", "2002:a00:1::"),
    )

    answers = python_inside(
        netd, "tell({each: attempt(socket.create_connection, (each, 80)) for each in argv})", *targets
    )

    assert answers == dict.fromkeys(targets, "EACCES")


def test_loopback_is_the_sandbox_itself_and_never_the_host(netd: Netd, site: Site) -> None:
    everything = NetworkPolicy(allow=("0.0.0.0/0", "::/0"))
    targets = ("127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "192.0.0.8")
    before = len(site.visits)

    answers = python_inside(
        netd,
        "tell({each: attempt(socket.create_connection, (each, argv[0])) for each in argv[1:]})",
        site.port,
        *targets,
        policy=everything,
    )

    assert answers == dict.fromkeys(targets, "ECONNREFUSED")
    assert len(site.visits) == before


def test_a_sandbox_serves_itself(netd: Netd) -> None:
    code = """
    answers = []
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "192.0.0.8")):
        server = socket.create_server((address, 0), family=family)
        for timeout in (None, 5):
            client = socket.create_connection(server.getsockname()[:2], timeout)
            accepted, _ = server.accept()
            client.sendall(b"from here")
            answers.append([accepted.recv(20).decode(), accepted.getpeername() == client.getsockname()])
    tell(answers)
    """

    assert python_inside(netd, code) == [["from here", True]] * 6


def test_a_blocking_connection_to_a_full_queue_of_its_own_waits_and_then_succeeds(netd: Netd) -> None:
    code = """
    server = socket.create_server(("127.0.0.1", 0), backlog=0)
    filling = []
    for _ in range(3):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(server.getsockname())
        filling.append(one)
    done = []
    late = threading.Thread(target=lambda: done.append(attempt(socket.create_connection, server.getsockname())))
    late.start()
    late.join(0.3)
    waited = late.is_alive()
    while late.is_alive():
        server.settimeout(0.1)
        attempt(server.accept)
    tell([waited, done])
    """

    assert python_inside(netd, code) == [True, ["done"]]


def test_unix_sockets_lead_to_the_sandbox_and_not_to_the_host(netd: Netd) -> None:
    code = """
    import tempfile
    folder = tempfile.mkdtemp()
    os.symlink(folder, folder + "-link")
    os.chdir(folder)
    def reach(name):
        return attempt(socket.socket(socket.AF_UNIX).connect, name)
    servers = []
    for name in ("\\0own", folder + "/a.sock", "b.sock"):
        servers.append(socket.socket(socket.AF_UNIX))
        servers[-1].bind(name)
        servers[-1].listen()
    names = ["\\0own", folder + "/a.sock", "b.sock", folder + "-link/a.sock", "\\0" + argv[0], "/run/nscd/socket"]
    tell([reach(name) for name in names])
    """
    with socket.socket(socket.AF_UNIX) as host:
        host.bind("\0moorage-test-of-the-host")
        host.listen()

        answers = python_inside(netd, code, "moorage-test-of-the-host")

    assert answers == ["done", "done", "done", "done", "ECONNREFUSED", "ENOENT"]


def test_a_path_to_a_socket_that_another_user_made_is_refused(netd: Netd) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        path = Path(folder, "host.sock")
        server.bind(str(path))
        server.listen()
        os.chown(path, ORDINARY_USER, ORDINARY_USER)

        answer = python_inside(netd, "tell(attempt(socket.socket(socket.AF_UNIX).connect, argv[0]))", path)

    assert answer == "ECONNREFUSED"


def test_processes_of_one_sandbox_find_each_other_through_a_fork_server(netd: Netd) -> None:
    code = """
    import multiprocessing
    if __name__ == "__main__":
        with multiprocessing.get_context("forkserver").Pool(2) as pool:
            tell(pool.map(abs, [-1, -2]))
    """

    assert python_inside(netd, code) == [1, 2]


def test_datagrams_stay_in_the_sandbox(netd: Netd) -> None:
    code = """
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(("127.0.0.1", 0))
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    to_host = [attempt(sock.connect, (argv[0], int(argv[1]))), attempt(sock.sendto, b"x", (argv[0], int(argv[1]))),
               attempt(sock.sendto, b"x", ("127.0.0.1", int(argv[1])))]
    sock.connect(own.getsockname())
    sock.send(b"mine")
    tell([to_host, own.recv(10).decode()])
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as host:
        host.bind(("0.0.0.0", 0))
        host.setblocking(False)
        everything = NetworkPolicy(allow=("0.0.0.0/0",))

        answer = python_inside(netd, code, outside_address(), host.getsockname()[1], policy=everything)

        with pytest.raises(BlockingIOError):
            host.recv(10)
    assert answer == [["ENETUNREACH", "ENETUNREACH", "done"], "mine"]


def test_a_server_that_is_down_is_reported_as_such(netd: Netd) -> None:
    with socket.socket() as closed:
        closed.bind(("0.0.0.0", 0))
        port = closed.getsockname()[1]
        code = """
        import select
        waiting = socket.socket()
        waiting.setblocking(False)
        first = attempt(waiting.connect, (argv[0], int(argv[1])))
        select.select([], [waiting], [])
        tell([attempt(socket.create_connection, argv[:2]), first,
              errno.errorcode[waiting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)]])
        """

        answer = python_inside(netd, code, outside_address(), port, policy=NetworkPolicy(allow=(outside_address(),)))

    assert answer[0] == "ECONNREFUSED"
    assert answer[1:] in (["EINPROGRESS", "ECONNREFUSED"], ["ECONNREFUSED", "ECONNREFUSED"])


def test_what_was_set_on_a_socket_holds_after_it_was_connected(netd: Netd, site: Site, internet: NetworkPolicy) -> None:
    code = """
    def state(sock):
        flags = fcntl.fcntl(sock, fcntl.F_GETFD), fcntl.fcntl(sock, fcntl.F_GETFL) & os.O_NONBLOCK
        options = [(6, 1, 4), (1, 9, 4), (6, 4, 4), (1, 13, 8), (1, 20, 16), (1, 21, 16)]
        return [*flags, *(sock.getsockopt(*option).hex() for option in options)]
    answers = []
    for inheritable, blocking in ((True, True), (False, True), (True, False), (False, False)):
        sock = socket.socket()
        sock.set_inheritable(inheritable)
        sock.setblocking(blocking)
        for level, option in ((6, 1), (1, 9)):
            sock.setsockopt(level, option, 1)
        sock.setsockopt(6, 4, 77)
        sock.setsockopt(1, 13, struct.pack("ii", 1, 3))
        for option in (20, 21):
            sock.setsockopt(1, option, struct.pack("qq", 9, 0))
        before = state(sock)
        sock.connect_ex((argv[0], int(argv[1])))
        answers.append([state(sock) == before, sock.getsockname()[0]])
    tell(answers)
    """

    answers = python_inside(netd, code, site.address, site.port, policy=internet)

    assert answers == [[True, site.address]] * 4


def test_connecting_again_answers_as_the_kernel_does(netd: Netd, site: Site, internet: NetworkPolicy) -> None:
    code = """
    import select
    target = (argv[0], int(argv[1]))
    sock = socket.create_connection(target)
    waiting = socket.socket()
    waiting.setblocking(False)
    waiting.connect_ex(target)
    select.select([], [waiting], [])
    tell([attempt(sock.connect, target), attempt(waiting.connect, target), attempt(sock.connect, ("127.0.0.1", 1))])
    """

    assert python_inside(netd, code, site.address, site.port, policy=internet) == ["EISCONN", "EISCONN", "EISCONN"]


def test_a_socket_whose_connection_failed_can_be_used_for_another(
    netd: Netd, site: Site, internet: NetworkPolicy
) -> None:
    code = """
    import select
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex((argv[0], 1))
    select.select([], [sock], [])
    failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    sock.setblocking(True)
    sock.connect((argv[0], int(argv[1])))
    sock.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
    tell([errno.errorcode[failed], sock.makefile("rb").read()[-5:].decode()])
    """

    assert python_inside(netd, code, site.address, site.port, policy=internet) == ["ECONNREFUSED", "hello"]


def test_a_sandbox_without_a_network_has_itself_and_no_names(netd: Netd) -> None:
    code = """
    server = socket.create_server(("127.0.0.1", 0))
    try:
        socket.getaddrinfo("example.com", 80)
        name = "found"
    except socket.gaierror:
        name = "unknown"
    targets = [server.getsockname(), ("203.0.113.1", 80)]
    tell([*(attempt(socket.create_connection, target) for target in targets), name])
    """

    assert python_inside(netd, code, policy=NetworkPolicy(outside=False)) == ["done", "EACCES", "unknown"]


def test_a_blocked_network_stays_closed_although_it_is_allowed(netd: Netd, site: Site) -> None:
    policy = NetworkPolicy(allow=("0.0.0.0/0",), block=(f"{site.address}/24",))

    answer = python_inside(
        netd, "tell(attempt(socket.create_connection, argv[:2]))", site.address, site.port, policy=policy
    )

    assert answer == "EACCES"


def test_an_ordinary_user_runs_sandboxes_and_their_network(site: Site, internet: NetworkPolicy) -> None:
    with readable_by_everyone() as (python, source):
        who: dict[str, Any] = {"python": python, "source": source, "user": ORDINARY_USER}
        with running_netd(**who) as netd:
            answers = [
                python_inside(netd, FETCH, site.url, policy=internet, **who),
                python_inside(netd, "tell(attempt(socket.create_connection, ('10.0.0.1', 80)))", **who),
            ]

    assert answers == ["hello", "EACCES"]


@pytest.mark.parametrize(
    ("address", "own", "is_open"),
    [
        ("93.184.216.34", (), True),
        ("93.184.216.34", ("93.184.216.34/32",), False),
        ("::ffff:93.184.216.34", ("93.184.216.34/32",), False),
        ("64:ff9b::5db8:d822", ("93.184.216.34/32",), False),
        ("2606:4700::1", (), True),
        ("10.1.2.3", (), True),
        ("::ffff:10.1.2.3", (), True),
        ("10.1.3.3", (), False),
        ("10.1.2.9", (), False),
    ],
)
def test_the_policy_judges_every_face_of_an_address(address: str, own: tuple[str, ...], is_open: bool) -> None:
    policy = NetworkPolicy(allow=("10.1.2.0/24",), block=("10.1.2.9",))

    assert (policy.refusal(address, own) is None) == is_open


def test_a_policy_with_something_that_is_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match="harbor"):
        NetworkPolicy(block=("harbor",))


def test_the_addresses_of_this_host_are_known_and_read_again_when_they_are_old() -> None:
    answers = iter([("192.0.2.1/32",), ("192.0.2.2/32",)])
    own = OwnNetworks(read=lambda: next(answers), lifetime_s=0)
    kept = OwnNetworks(read=read_own_networks, lifetime_s=60)

    assert [own.get(), own.get()] == [("192.0.2.1/32",), ("192.0.2.2/32",)]
    assert {"127.0.0.0/8", f"{outside_address()}/32"} <= set(kept.get())
