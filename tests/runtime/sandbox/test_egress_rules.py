"""Egress rules, the app listener and CPU limits of sandboxes."""

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
from moorage.runtime.sandbox.network.listeners import AppListener
from moorage.runtime.sandbox.network.policy import NetworkPolicy
from moorage.runtime.shim import ports


@pytest.fixture(scope="module")
def netd() -> Iterator[Netd]:
    with running_netd() as running:
        yield running


def test_an_egress_rule_is_one_address_and_one_port() -> None:
    policy = NetworkPolicy(egress=("127.0.0.1:5433", "[::1]:5433"))

    assert policy.has_egress_rule(ip_address("127.0.0.1"), 5433)
    assert policy.has_egress_rule(ip_address("::1"), 5433)
    assert not policy.has_egress_rule(ip_address("127.0.0.1"), 5434)
    assert not policy.has_egress_rule(ip_address("127.0.0.2"), 5433)
    assert not policy.has_egress_rule(None, 5433)


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70000", "localhost:80", ":80"])
def test_an_egress_rule_without_valid_address_and_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|IPv4"):
        NetworkPolicy(egress=(text,))


def test_egress_rules_are_sent_with_the_rest_of_the_policy() -> None:
    policy = NetworkPolicy(allow=("10.0.0.0/8",), egress=("127.0.0.1:5433",))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        network.hand_over(ours, 1, 0, 0, 0, policy)

        received = network.SandboxReceiver(theirs).read()

    assert received is not None
    assert received[0].policy == policy
    for fd in (received[0].notify_fd, received[0].udp_fd, received[0].tcp_fd):
        socket.close(fd)


def test_an_egress_rule_allows_an_address_of_the_host_that_all_other_rules_refuse(netd: Netd) -> None:
    code = """
    def reach(port, family=socket.AF_INET, address="127.0.0.1"):
        with socket.socket(family) as sock:
            sock.settimeout(5)
            sock.connect((address, port))
            sock.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            assert b"hello" in sock.recv(4096) + sock.recv(4096)
    allowed, other = map(int, argv)
    ipv6 = attempt(reach, allowed, socket.AF_INET6, "::ffff:127.0.0.1")
    tell([attempt(reach, allowed), ipv6, attempt(reach, other)])
    """
    with serving("127.0.0.1") as allowed, serving("127.0.0.1") as other:
        policy = NetworkPolicy(block=("127.0.0.0/8",), outside=False, egress=(f"127.0.0.1:{allowed.port}",))

        answer = python_inside(netd, code, allowed.port, other.port, policy=policy)

        assert answer == ["done", "done", "ECONNREFUSED"]
        assert (len(allowed.visits), len(other.visits)) == (2, 0)


def test_the_app_listener_replaces_only_a_tcp_socket_at_the_same_port() -> None:
    calls: list[bool] = []
    with socket.create_server(("127.0.0.1", 0)) as host, socket.socket() as own, socket.socket() as elsewhere:
        listener = AppListener(host, lambda: calls.append(True))
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.bind(("127.0.0.2", listener.port))
        elsewhere.bind(("127.0.0.2", 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind(("127.0.0.2", listener.port))
            replaced = [listener.replaces(each) for each in (own, elsewhere, datagrams)]
        with socket.create_connection(("127.0.0.1", listener.port)), host.accept()[0] as accepted, host.dup() as twin:
            same = [listener.is_same(each) for each in (host, twin, accepted, own)]

        listener.listen(0)

    assert replaced == [True, False, False]
    assert same == [True, True, False, False]
    assert calls == [True]
    assert not listener.is_open


def test_the_app_listener_has_the_address_family_of_the_first_socket_that_it_replaces() -> None:
    with ports.bind() as host, socket.socket(socket.AF_INET6) as first, socket.socket() as second:
        listener = AppListener(host, lambda: None)

        listener.prepare_for(first)
        listener.listen(1)
        listener.prepare_for(second)

        with socket.create_connection(("127.0.0.1", listener.port)), listener.socket:
            accepted, peer = listener.socket.accept()
            accepted.close()
            assert listener.socket.getsockname() == ("::ffff:127.0.0.1", listener.port, 0, 0)
            assert peer[0] == "::ffff:127.0.0.1"
            assert listener.is_same(listener.socket)


def test_the_supervisor_handles_bind_only_for_sandboxes_that_listen() -> None:
    without, with_bind = seccomp.build(notify=True), seccomp.build(notify=True, listens=True)

    assert len(with_bind) > len(without)
    assert without == seccomp.build(notify=True, listens=False)


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
