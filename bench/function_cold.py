"""Cold starts: time to first byte of a first call, with and without a waiting sandbox.

The platform has all processors, as it has where it is used: a runtime that starts keeps more than one of them busy.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import function_platform
from bench.figures import Figure, at_most, percentile
from bench.function_platform import HELLO, Platform, in_parallel
from bench.function_sockets import get
from bench.load import BadAnswer, split_reply
from moorage.runtime.workers import runtimes

WAITING_BAR = at_most(5)
WAITING_TAIL_BAR = at_most(15)
MISS_BAR = {"python": at_most(12), "nodejs": at_most(60)}
ANSWER_S = 30.0
CODE = {
    # A function of its own each: cells are never shared, but the same code would be read from memory.
    "python": 'def main(params):\n    return {{"statusCode": 200, "body": "{name}"}}\n',
    "nodejs": 'exports.main = () => ({{ statusCode: 200, body: "{name}" }});\n',
}


NOTHING = {"python": ("-I", "-c", ""), "nodejs": ("-e", "")}


@dataclass(frozen=True)
class Sizes:
    calls: int  # of functions that were never called, with time between them
    pause_s: float  # enough for a new cell to take the place of the one that was used
    burst: int  # further such calls, one right after the other: more than there are cells waiting
    alone: int  # such calls on a platform that keeps no cell waiting


FULL = Sizes(calls=60, pause_s=0.4, burst=48, alone=40)
TINY = Sizes(calls=2, pause_s=0.1, burst=2, alone=1)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with function_platform.running(folder / "pool", pinned=False) as platform:
        pooled = {language: _pooled(platform, language, sizes) for language in HELLO}
    with function_platform.running(folder / "no-pool", pinned=False, function_pool=0) as platform:
        alone = {language: _alone(platform, language, sizes) for language in HELLO}
    return [figure for language in HELLO for figure in (*pooled[language], *alone[language])]


def _pooled(platform: Platform, language: str, sizes: Sizes) -> list[Figure]:
    names = _deploy(platform, language, sizes.calls + sizes.burst, sizes)
    waiting = _call_all(platform, names[: sizes.calls], sizes.pause_s)
    burst = _call_all(platform, names[sizes.calls :], 0.0)
    # The cells that waited are used up by then: a call has to have one made while their successors are made too.
    misses = burst[len(burst) // 2 :]
    warm = [name for name in names if not platform.invocations(name)[-1]["coldStart"]]
    title = f"functions cold, {language}"
    return [
        Figure(f"{title}, a cell waits: p50", percentile(waiting, 0.5), "ms", bar=WAITING_BAR),
        Figure(f"{title}, a cell waits: p95", percentile(waiting, 0.95), "ms", bar=WAITING_TAIL_BAR),
        Figure(f"{title}, after a burst: p50", percentile(misses, 0.5), "ms", bar=MISS_BAR[language]),
        Figure(f"{title}, after a burst: p95", percentile(misses, 0.95), "ms"),
        Figure(f"{title}: first calls that were not cold", len(warm), "", bar=at_most(0)),
    ]


def _alone(platform: Platform, language: str, sizes: Sizes) -> list[Figure]:
    taken, bare = [], []
    for name in _deploy(platform, language, sizes.alone, sizes):
        taken += _call_all(platform, [name], sizes.pause_s)
        bare.append(_bare_start_ms(language))
        time.sleep(sizes.pause_s)
    title = f"functions cold, {language}, no cell waits"
    against = f"bare {language}"
    return [
        Figure(f"{title}: p50", percentile(taken, 0.5), "ms", percentile(bare, 0.5), against, bar=MISS_BAR[language]),
        Figure(f"{title}: p95", percentile(taken, 0.95), "ms", percentile(bare, 0.95), against),
    ]


def _bare_start_ms(language: str) -> float:
    """Return how long the runtime alone takes to start and end: no sandbox, no platform, no function."""
    runtime = runtimes.installed()[runtimes.resolve(language) or ""]
    argv = [str(runtime.executable), *NOTHING[language]]
    started = time.perf_counter()
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, env={})
    return (time.perf_counter() - started) * 1000


def _deploy(platform: Platform, language: str, count: int, sizes: Sizes) -> list[str]:
    """Deploy functions without calls; the first start of each language runtime is done before."""
    names = [f"cold-{language}-{number}" for number in range(count)]
    in_parallel(lambda name: platform.create(name, language, CODE[language].format(name=name)), names)
    platform.create(f"first-{language}", language, HELLO[language])
    platform.wait_until_served(platform.path(f"first-{language}"))
    time.sleep(sizes.pause_s * 5)
    return names


def _call_all(platform: Platform, names: Sequence[str], pause_s: float) -> list[float]:
    """Call each function once, on one connection, and return the milliseconds to the first byte of each answer."""
    taken = []
    with socket.create_connection(("127.0.0.1", platform.edge_port), timeout=ANSWER_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name in names:
            taken.append(_first_byte_ms(sock, platform.path(name)))
            time.sleep(pause_s)
    return taken


def _first_byte_ms(sock: socket.socket, path: str) -> float:
    request = get(path)
    started = time.perf_counter()
    sock.sendall(request)
    answer = sock.recv(65536)
    taken = time.perf_counter() - started
    while (found := split_reply(answer)) is None:
        more = sock.recv(65536)
        if not more:
            raise BadAnswer(f"{path}: the connection ended before the answer did")
        answer += more
    if found[0].status != 200:
        raise BadAnswer(f"{path}: {found[0].status} {found[0].body[:300]!r}")
    return taken * 1000
