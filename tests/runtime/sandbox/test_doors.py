"""Doors: what of the host a sandbox may reach although it is closed otherwise, and the rule that it stays just that."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from tests.runtime.sandbox.sandbox_support import Netd, python_inside, running_netd, serving

from moorage.runtime.sandbox import seccomp
from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.cgroups.v1 import Layout, V1Group
from moorage.runtime.sandbox.cgroups.v2 import V2Cgroups, V2Group
from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.sandbox.network.listeners import Door
from moorage.runtime.sandbox.network.policy import NetworkPolicy


@pytest.fixture(scope="module")
def netd() -> Iterator[Netd]:
    with running_netd() as running:
        yield running


def test_a_door_is_one_address_and_one_port() -> None:
    policy = NetworkPolicy(doors=("127.0.0.1:5433", "[::1]:5433"))

    assert policy.is_door(ip_address("127.0.0.1"), 5433)
    assert policy.is_door(ip_address("::1"), 5433)
    assert not policy.is_door(ip_address("127.0.0.1"), 5434)
    assert not policy.is_door(ip_address("127.0.0.2"), 5433)
    assert not policy.is_door(None, 5433)


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70000", "localhost:80", ":80"])
def test_what_is_no_address_and_port_is_no_door(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|IPv4"):
        NetworkPolicy(doors=(text,))


def test_doors_are_handed_over_with_the_rest_of_the_policy() -> None:
    policy = NetworkPolicy(allow=("10.0.0.0/8",), doors=("127.0.0.1:5433",))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        network.hand_over(ours, 1, 0, 0, 0, policy)

        handed = network.Inbox(theirs).read()

    assert handed is not None
    assert handed[0].policy == policy
    for fd in (handed[0].notify_fd, handed[0].udp_fd, handed[0].tcp_fd):
        socket.close(fd)


def test_a_door_leads_to_the_host_past_what_closes_the_rest(netd: Netd) -> None:
    code = """
    def reach(port, family=socket.AF_INET, address="127.0.0.1"):
        with socket.socket(family) as sock:
            sock.settimeout(5)
            sock.connect((address, port))
            sock.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            assert b"hello" in sock.recv(4096) + sock.recv(4096)
    door, other = map(int, argv)
    tell([attempt(reach, door), attempt(reach, door, socket.AF_INET6, "::ffff:127.0.0.1"), attempt(reach, other)])
    """
    with serving("127.0.0.1") as door, serving("127.0.0.1") as other:
        policy = NetworkPolicy(block=("127.0.0.0/8",), outside=False, doors=(f"127.0.0.1:{door.port}",))

        answer = python_inside(netd, code, door.port, other.port, policy=policy)

        assert answer == ["done", "done", "ECONNREFUSED"]
        assert (len(door.visits), len(other.visits)) == (2, 0)


def test_only_a_listener_at_the_same_port_is_given_the_door() -> None:
    opened: list[bool] = []
    with socket.create_server(("127.0.0.1", 0)) as host, socket.socket() as own, socket.socket() as elsewhere:
        door = Door(host, lambda: opened.append(True))
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.bind(("127.0.0.2", door.port))
        elsewhere.bind(("127.0.0.2", 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind(("127.0.0.2", door.port))
            suits = [door.is_for(each) for each in (own, elsewhere, datagrams)]
        with socket.create_connection(("127.0.0.1", door.port)), host.accept()[0] as came, host.dup() as twin:
            itself = [door.is_itself(each) for each in (host, twin, came, own)]

        door.open(0)

    assert suits == [True, False, False]
    assert itself == [True, True, False, False]
    assert opened == [True]
    assert not door.is_whole


def test_bind_is_handed_to_the_supervisor_only_where_there_is_a_door() -> None:
    without, with_door = seccomp.build(notify=True), seccomp.build(notify=True, door=True)

    assert len(with_door) > len(without)
    assert without == seccomp.build(notify=True, door=False)


def test_processors_are_limited_and_freed_again_in_version_2(tmp_path: Path) -> None:
    cgroups = V2Cgroups("t", str(tmp_path), str(tmp_path), str(tmp_path), frozenset({"cpu"}))
    (tmp_path / "group").mkdir()
    for name in ("cpu.max", "cpu.weight"):
        (tmp_path / "group" / name).touch()
    group = V2Group(cgroups, "group")

    group.limit(memory_mb=64, pids=8, weight=100)
    untouched = (tmp_path / "group" / "cpu.max").read_text()
    group.limit(memory_mb=64, pids=8, weight=100, cpu=0.5)
    limited = (tmp_path / "group" / "cpu.max").read_text()
    group.limit(memory_mb=64, pids=8, weight=100)

    assert (untouched, limited) == ("", "50000 100000")
    assert (tmp_path / "group" / "cpu.max").read_text().startswith("max 100000")


def test_processors_are_limited_and_freed_again_in_version_1(tmp_path: Path) -> None:
    (tmp_path / "group").mkdir()
    for name in ("cpu.cfs_quota_us", "cpu.shares"):
        (tmp_path / "group" / name).touch()
    group = V1Group(Layout({"cpu": str(tmp_path)}, has_idle=False, has_swap=False, can_kill=False), "group", set())

    group.limit(memory_mb=64, pids=8, weight=100, cpu=1.5)
    limited = (tmp_path / "group" / "cpu.cfs_quota_us").read_text()
    group.limit(memory_mb=64, pids=8, weight=100)

    assert limited == "150000"
    assert (tmp_path / "group" / "cpu.cfs_quota_us").read_text().startswith("-1")


def test_no_quota_is_smaller_than_the_kernel_takes() -> None:
    assert files.quota_us(0.001) == 1000
    assert files.quota_us(2) == 200_000
