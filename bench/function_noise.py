"""A noisy neighbour: endless loops and a fork bomb of another organization, on the core that a quiet function is on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import function_load, function_platform, function_rounds
from bench.figures import Figure, median, ratio_at_least
from bench.function_platform import HELLO, Platform
from bench.function_rounds import Plan

BAR = ratio_at_least(0.95)
QUIET, NOISY = 0, 1  # seats: organizations
LOOP = "def main(params):\n    while True:\n        pass\n"
BOMB = """import os
def main(params):
    while True:
        try:
            os.fork()
        except OSError:
            pass
"""


@dataclass(frozen=True)
class Sizes:
    plan: Plan
    loops: int
    head_start_s: float  # of the noise, before anything is measured
    own_generator: bool


FULL = Sizes(Plan(rounds=3, seconds=4, warm_up=12_000, connections=(1, 32)), 4, head_start_s=1, own_generator=False)
TINY = Sizes(Plan(rounds=1, seconds=0.1, warm_up=1, connections=(2,)), 1, head_start_s=0.1, own_generator=True)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with function_platform.running(folder, seats=2) as platform:
        platform.create("quiet", "python", HELLO["python"], seat=QUIET)
        platform.wait_until_served(platform.path("quiet", QUIET))
        names = _make_noisy(platform, sizes)
        return _measure(platform, names, sizes)


def _make_noisy(platform: Platform, sizes: Sizes) -> list[str]:
    names = [f"loop-{number}" for number in range(sizes.loops)]
    for name in names:
        platform.create(name, "python", LOOP, seat=NOISY, timeout=_noise_ms(sizes))
    platform.create("bomb", "python", BOMB, seat=NOISY, timeout=_noise_ms(sizes))
    return [*names, "bomb"]


def _noise_ms(sizes: Sizes) -> int:
    """Return the timeout that makes a noise last through one measurement of every kind."""
    return int((sizes.head_start_s + (sizes.plan.seconds + 1) * len(sizes.plan.connections) + 1) * 1000)


def _measure(platform: Platform, names: list[str], sizes: Sizes) -> list[Figure]:
    generator = function_load.Own() if sizes.own_generator else function_load.best()
    target = platform.target("quiet", ["quiet"], QUIET)
    function_rounds.warm_up(target, generator, sizes.plan)
    rates: dict[tuple[bool, int], list[float]] = {}
    tails: dict[tuple[bool, int], list[float]] = {}

    def measure(is_noisy: bool) -> None:
        for clients in sizes.plan.connections:
            done = generator.drive(target.port, target.paths, connections=clients, seconds=sizes.plan.seconds)
            rates.setdefault((is_noisy, clients), []).append(done.rate)
            tails.setdefault((is_noisy, clients), []).append(done.p99_ms)

    for _ in range(sizes.plan.rounds):
        function_rounds.wait_until_quiet(target)
        measure(False)
        with _noise(platform, names, sizes):
            measure(True)
    return [
        figure
        for clients in sizes.plan.connections
        for figure in (
            _figure(rates, clients, "requests/s", "/s", judged=True),
            _figure(tails, clients, "p99", "ms", judged=False),
        )
    ]


def _figure(found: dict[tuple[bool, int], list[float]], clients: int, title: str, unit: str, *, judged: bool) -> Figure:
    noisy, quiet = median(found[True, clients]), median(found[False, clients])
    name = f"functions noise, c={clients}: {title} beside the noise"
    return Figure(name, noisy, unit, quiet, "without noise", BAR if judged else None)


@contextmanager
def _noise(platform: Platform, names: list[str], sizes: Sizes) -> Iterator[None]:
    """Call every noisy function, again and again. None answers before its time is up, unless the platform ends it."""
    stopping = threading.Event()

    def make(name: str) -> None:
        while not stopping.is_set():
            function_platform.get(platform.edge_port, platform.path(name, NOISY))

    threads = [threading.Thread(target=make, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    try:
        time.sleep(sizes.head_start_s)
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
