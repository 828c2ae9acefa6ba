"""Functions that misuse their channels: the sandbox ends, invoker and edge continue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.runtime.workers.invoker_support import MODE_PARAMS, Host, Lab, lab_on, running, until

pytestmark = pytest.mark.group("cells-channels")

BOUNDARY = pytest.mark.boundary(
    "code-to-host", "Code that misuses the channels of its sandbox is killed and blocks neither invoker nor edge."
)
QUICK = "def main(args):\n    return 'fine'\n"
# Attacks only as a snapshot, which a local variable of the worker shows.
HOSTILE = """
import os, signal, socket, sys, time
time.sleep(0.2)
frame = sys._getframe()
while frame is not None and "load" not in frame.f_locals:
    frame = frame.f_back
if frame.f_locals["load"].get("template"):
    high = [name for name in os.listdir("/proc/self/fd") if int(name) >= 900]
    own = [name for name in high if os.readlink("/proc/self/fd/" + name).startswith("socket:")]
    sock = socket.socket(fileno=os.dup(int(own[0])))
    sock.settimeout(None)
    {attack}

def main(args):
    time.sleep(args.get("hold", 0))
    return os.getpid()
"""
LOADED = "sock.sendall((10).to_bytes(4, 'little') + bytes([17, 1]) + bytes(8))"
ATTACKS = {
    "a frame that is too long": "sock.sendall((2**31).to_bytes(4, 'little') + bytes(2**20))",
    "a frame without end": "sock.sendall((2**24).to_bytes(4, 'little') + bytes([17, 1]) + bytes(8))\n"
    "    while True: sock.sendall(bytes(65536))",
    "a frame of another kind": "sock.sendall((9).to_bytes(4, 'little') + bytes([16] * 20))\n    time.sleep(3600)",
    "half a frame": "sock.sendall((10).to_bytes(4, 'little') + bytes([17]))\n    time.sleep(3600)",
    "more after its frame": f"{LOADED}\n    sock.sendall(bytes(2**20))\n    time.sleep(3600)",
    "a descriptor": "socket.send_fds(sock, [bytes(1)], [0])\n    time.sleep(3600)",
}


@pytest.fixture(scope="module", params=MODE_PARAMS)
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    with running(request.param) as running_host:
        yield running_host


@pytest.fixture(scope="module")
def quick(host: Host) -> int:
    return host.put(QUICK)


def is_killed(host: Host, number: int) -> bool:
    return f"killed the snapshot of function {number}:" in host.log("moorage.runtime.workers.main")


@BOUNDARY
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_snapshot_that_breaks_the_protocol_is_killed_and_others_are_served(
    host: Host, quick: int, attack: str
) -> None:
    number = host.put(HOSTILE.format(attack=ATTACKS[attack]), timeout_ms=5000)

    first = host.call(number)
    until(lambda: is_killed(host, number), "the end of the snapshot")
    others = host.result(quick)
    again = host.call(number)
    host.drop(number)

    assert (first["status"], others, again["status"]) == ("success", "fine", "success")
    assert host.invoker.poll() is None


@BOUNDARY
def test_a_snapshot_that_does_not_fork_is_killed_and_its_calls_run_elsewhere(host: Host, quick: int) -> None:
    number = host.put(HOSTILE.format(attack=f"{LOADED}\n    time.sleep(3600)"), timeout_ms=60_000)

    host.call(number)
    with ThreadPoolExecutor(16) as threads:
        told: list[dict[str, object]] = []
        for count in range(2, 16):
            told += threads.map(lambda _: host.call(number, {"hold": 0.3}), range(count))
            if is_killed(host, number):
                break
    others = host.result(quick)
    host.drop(number)

    assert is_killed(host, number)
    assert {each["error"] for each in told} == {None}
    assert others == "fine"


@pytest.fixture(scope="module")
def lab(host: Host) -> Lab:
    return lab_on(host, timeout_ms=10_000)


@BOUNDARY
def test_half_a_large_answer_is_not_kept_beyond_its_call(host: Host, lab: Lab, quick: int) -> None:
    before_kb = rss_kb(host.edge.pid)
    begun = "sock = edge_socket()\nsock.sendall((20 << 20).to_bytes(4, 'little') + bytes(16 << 20))\ntime.sleep(60)"

    with ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(lab.error, begun) for _ in range(8)]
        others = host.result(quick)
        told = {each.result() for each in calls}

    assert others == "fine"
    assert told == {"the function ran past its 10000 ms timeout"}
    until(lambda: rss_kb(host.edge.pid) < before_kb + 60_000, "the memory's return")


@BOUNDARY
def test_a_function_that_prints_all_it_may_and_dies_leaves_a_log_and_others_are_served(
    host: Host, lab: Lab, quick: int
) -> None:
    told = lab.error("print('x' * 9_000_000, flush=True)\nctypes.CDLL(None)._exit(3)")
    others = host.result(quick)

    # On a busy machine the edge sees the socket close before the invoker reports the exit code.
    assert re.fullmatch(r"the function's process ended( \(exit code 3\))? before it answered", told)
    assert others == "fine"


def rss_kb(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])
