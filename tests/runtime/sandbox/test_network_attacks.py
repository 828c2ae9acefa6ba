"""Hostile programs in a sandbox: they reach neither the host nor other sandboxes, and do not delay them."""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.sandbox.sandbox_support import (
    SOURCE,
    Netd,
    Site,
    outside_address,
    python_argv,
    python_inside,
    running_netd,
    serving,
    start_inside,
)

from moorage.runtime.sandbox.network.alarm import Alarm
from moorage.runtime.sandbox.network.policy import NetworkPolicy

pytestmark = pytest.mark.boundary(
    "tenant-to-network", "Connections out of a sandbox are judged by the address that is really connected to."
)

TCP_ESTABLISHED, TCP_CLOSE_WAIT = 1, 8
FETCH = "import urllib.request\ntell(urllib.request.urlopen(argv[0]).read().decode())"


@pytest.fixture
def netd() -> Iterator[Netd]:
    with running_netd() as running:
        yield running


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving(outside_address()) as running:
        yield running


@pytest.fixture(scope="module")
def internet(site: Site) -> NetworkPolicy:
    return NetworkPolicy(allow=(site.address,))


@contextlib.contextmanager
def secret_server() -> Iterator[socket.socket]:
    """Listen on the host's loopback, outside of the ephemeral ports: a sandbox could connect such a port to itself."""
    with socket.socket() as server:
        for port in range(20000, 30000):
            with contextlib.suppress(OSError):
                server.bind(("127.0.0.1", port))
                break
        server.listen()
        server.setblocking(False)
        yield server


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """Listen on the host with a full backlog: connecting clients wait."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("0.0.0.0", 0), backlog=0))
        port = server.getsockname()[1]
        for _ in range(4):
            filling = stack.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(("127.0.0.1", port))
        yield port


@contextlib.contextmanager
def running(netd: Netd, code: str, *arguments: object, policy: NetworkPolicy) -> Iterator[subprocess.Popen[str]]:
    """Run a hostile sandbox during the test, from its first line of output on."""
    with start_inside(netd, python_argv(code, *arguments), policy=policy) as process:
        try:
            assert process.stdout
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


@pytest.mark.deep
def test_an_address_that_changes_during_the_call_never_leads_to_the_host(
    netd: Netd, site: Site, internet: NetworkPolicy
) -> None:
    code = """
    good = struct.pack("=H", 2) + struct.pack("!H", int(argv[1])) + socket.inet_aton(argv[0]) + bytes(8)
    bad = struct.pack("=H", 2) + struct.pack("!H", int(argv[2])) + socket.inet_aton("127.0.0.1") + bytes(8)
    address = ctypes.create_string_buffer(good, 16)
    place = ctypes.addressof(address)
    over = threading.Event()
    def swap():
        while not over.is_set():
            ctypes.memmove(place, bad, 16)
            ctypes.memmove(place, good, 16)
    swapper = threading.Thread(target=swap)
    swapper.start()
    sys.setswitchinterval(0.00001)
    counts = {}
    for _ in range(2000):
        sock = socket.socket()
        answer = "done" if libc.connect(sock.fileno(), address, 16) == 0 else errno.errorcode[ctypes.get_errno()]
        counts[answer] = counts.get(answer, 0) + 1
        sock.close()
    over.set()
    tell(counts)
    """
    with secret_server() as secret:
        counts = python_inside(netd, code, site.address, site.port, secret.getsockname()[1], policy=internet)

        with pytest.raises(BlockingIOError):
            secret.accept()
    assert set(counts) == {"done", "ECONNREFUSED"}


def test_a_descriptor_that_changes_during_the_call_never_leads_to_the_host(
    netd: Netd, site: Site, internet: NetworkPolicy
) -> None:
    code = """
    target, secret = (argv[0], int(argv[1])), ("127.0.0.1", int(argv[2]))
    outside, own = socket.create_connection(target), socket.socket()
    sock = socket.socket(fileno=os.dup(own.fileno()))
    over = threading.Event()
    def swap():
        while not over.is_set():
            os.dup2(outside.fileno(), sock.fileno())
            os.dup2(own.fileno(), sock.fileno())
    swapper = threading.Thread(target=swap)
    swapper.start()
    connected = {attempt(sock.connect, secret) for _ in range(1000)}
    listened = {attempt(sock.listen) for _ in range(1000)}
    over.set()
    swapper.join()
    tell([sorted(connected), sorted(listened), outside.getsockopt(6, 11, 1)[0]])
    """
    with secret_server() as secret:
        connected, listened, state = python_inside(
            netd, code, site.address, site.port, secret.getsockname()[1], policy=internet
        )

        with pytest.raises(BlockingIOError):
            secret.accept()
    assert connected == ["ECONNREFUSED", "EISCONN"]
    assert listened == ["EACCES", "done"]
    assert state in (TCP_ESTABLISHED, TCP_CLOSE_WAIT)


def test_a_socket_of_the_host_cannot_be_turned_to_anything_else(
    netd: Netd, site: Site, internet: NetworkPolicy
) -> None:
    code = """
    import select
    target = (argv[0], int(argv[1]))
    connected = socket.create_connection(target)
    failed = socket.socket()
    failed.setblocking(False)
    failed.connect_ex((argv[0], 1))
    select.select([], [failed], [])
    failed.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    ended = socket.create_connection(target)
    ended.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ended.shutdown(socket.SHUT_RDWR)
    unspecified = bytes(16)
    answers = []
    for sock in (connected, failed, ended):
        answers.append([
            attempt(sock.listen),
            attempt(sock.bind, ("0.0.0.0", 0)),
            attempt(sock.sendto, b"x", socket.MSG_FASTOPEN, ("127.0.0.1", target[1])),
            errno.errorcode[ctypes.get_errno()] if libc.connect(sock.fileno(), unspecified, 16) else "done",
            attempt(sock.setsockopt, 1, 25, b"lo"),
            attempt(fcntl.ioctl, sock, 0x8912, bytes(40)),
            [attempt(sock.setsockopt, 1, 2, 0), sock.getsockopt(1, 2)],
        ])
    tell([answers, attempt(failed.connect, ("127.0.0.1", target[1]))])
    """

    answers, again = python_inside(netd, code, site.address, site.port, policy=internet)

    assert answers == [["EACCES", "EINVAL", "EPERM", "EAFNOSUPPORT", "EPERM", "EPERM", ["done", 1]]] * 3
    assert again == "EACCES"


@pytest.mark.deep
def test_no_thread_of_a_sandbox_can_hold_up_the_connections_of_another(
    netd: Netd, site: Site, internet: NetworkPolicy
) -> None:
    code = """
    server = socket.create_server(("127.0.0.1", 0), backlog=0)
    filling = [socket.socket() for _ in range(4)]
    for one in filling:
        one.setblocking(False)
        one.connect_ex(server.getsockname())
    port = struct.pack("!H", server.getsockname()[1])
    address = struct.pack("=H", 2) + port + socket.inet_aton("127.0.0.1") + bytes(8)
    sockets = [socket.socket().detach() for _ in range(16)]
    for sock in sockets:
        if os.fork() == 0:
            libc.prctl(1, 9)  # Die with the parent.
            while True:
                libc.connect(sock, address, 16)
    tell("ready")
    while True:
        for flags in (0, os.O_NONBLOCK):
            for sock in sockets:
                fcntl.fcntl(sock, fcntl.F_SETFL, flags)
    """
    with running(netd, code, policy=NetworkPolicy()):
        answers = [python_inside(netd, FETCH, site.url, policy=internet) for _ in range(3)]

    assert answers == ["hello"] * 3


def test_the_last_close_of_a_socket_that_lingers_ends_when_the_alarm_rings() -> None:
    with contextlib.ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGALRM, signal.getsignal(signal.SIGALRM))
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = stack.enter_context(socket.create_connection(server.getsockname()))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while client.send(bytes(1 << 16)):
                pass
        alarm = Alarm()

        with alarm.watch():
            client.close()

        assert alarm.rang


def test_a_sandbox_that_stands_still_does_not_hold_up_another(netd: Netd, site: Site, internet: NetworkPolicy) -> None:
    code = """
    tell("ready")
    while True:
        socket.create_connection(argv[:2]).close()
    """
    with running(netd, code, site.address, site.port, policy=internet) as stopped:
        answers = []
        for _ in range(3):
            stopped.send_signal(signal.SIGSTOP)
            answers.append(python_inside(netd, FETCH, site.url, policy=internet))
            stopped.send_signal(signal.SIGCONT)

    assert answers == ["hello"] * 3


@pytest.mark.deep
def test_a_flood_of_connections_leaves_room_for_others(netd: Netd, site: Site, internet: NetworkPolicy) -> None:
    code = """
    def flood():
        while True:
            attempt(socket.create_connection, ("10.0.0.1", 1))
    for _ in range(16):
        threading.Thread(target=flood, daemon=True).start()
    tell("ready")
    time.sleep(60)
    """
    with running(netd, code, policy=internet):
        answers = [python_inside(netd, FETCH, site.url, policy=internet) for _ in range(3)]

    assert answers == ["hello"] * 3


def test_a_call_with_arguments_that_make_no_sense_gets_the_error_of_the_kernel(netd: Netd) -> None:
    code = """
    address = ctypes.create_string_buffer(struct.pack("=H", 2) + bytes(14), 16)
    def connect(fd, pointer, length):
        return errno.errorcode[ctypes.get_errno()] if libc.connect(fd, pointer, length) else "done"
    tcp = socket.socket().detach()
    tell([connect(tcp, None, 16), connect(tcp, None, -1), connect(tcp, address, 4096), connect(-1, address, 16),
          connect(0, address, 16), connect(tcp, address, 8), connect(tcp, b"\\x0a" + bytes(27), 28)])
    """

    answers = python_inside(netd, code)

    assert answers == ["EFAULT", "EINVAL", "EINVAL", "EBADF", "ENOTSOCK", "EINVAL", "EAFNOSUPPORT"]


def test_everything_of_a_sandbox_is_forgotten_when_it_is_killed(
    netd: Netd, site: Site, internet: NetworkPolicy
) -> None:
    code = """
    sock = socket.create_connection((argv[0], int(argv[1])))
    for _ in range(3):
        threading.Thread(target=attempt, args=(socket.create_connection, (argv[0], int(argv[2]))), daemon=True).start()
    tell("ready")
    time.sleep(60)
    """
    python_inside(netd, FETCH, site.url, policy=internet)
    idle = netd.idle_descriptors()
    with silent_server() as silent, contextlib.ExitStack() as cells:
        for _ in range(4):
            cells.enter_context(running(netd, code, site.address, site.port, silent, policy=internet))

        busy = netd.descriptors_after(idle + 4 * (3 + 3))
        cells.close()

        assert busy == idle + 4 * (3 + 3)
        assert netd.descriptors_after(idle) == idle


@pytest.mark.deep
def test_hundreds_of_sandboxes_are_served_by_one_supervisor(netd: Netd, site: Site) -> None:
    # One interpreter becomes many sandboxes, so that the test does not wait for as many to start.
    code = """
    import sandbox_support
    channel, policy = int(argv[0]), {"allow": [argv[1]], "block": [], "outside": True}
    for cell in range(200):
        if os.fork() == 0:
            sandbox_support.become_sandbox({"channel": channel, "cell": cell, "policy": policy})
            sys.stdout.write(attempt(socket.create_connection, (argv[1], int(argv[2]))))
            sys.stdout.flush()
            sys.stdin.read()
            os._exit(0 if attempt(socket.create_connection, ("10.0.0.1", 80)) == "EACCES" else 1)
    os.close(0)
    codes = {os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(200)}
    sys.exit(0 if codes == {0} else 1)
    """
    channel = netd.channel.fileno()
    python_inside(netd, "tell(1)")
    idle = netd.idle_descriptors()
    environment = {"PYTHONPATH": f"{SOURCE}:{Path(__file__).parent}"}
    pipe = subprocess.PIPE
    argv = python_argv(code, channel, site.address, site.port)
    with subprocess.Popen(argv, pass_fds=[channel], env=environment, text=True, stdin=pipe, stdout=pipe) as cells:
        assert cells.stdout
        connected = cells.stdout.read(4 * 200)

        registered = netd.descriptors_after(idle + 3 * 200)
        cells.communicate()

    assert connected == "done" * 200
    assert registered == idle + 3 * 200
    assert cells.returncode == 0
    assert netd.descriptors_after(idle) == idle
