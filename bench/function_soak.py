"""Minutes near the maximum throughput, while a new version goes live every second.

Every version answers with a number of its own, so each answer says which one it came from.
"""

from __future__ import annotations

import random
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bench import function_platform, machine
from bench.figures import Figure, at_most, median, percentile, ratio_at_most
from bench.function_platform import Platform
from bench.function_sockets import Sockets, expect_all, get
from bench.load import Reply
from bench.machine import CLIENT_CORE, on_core

NONE = at_most(0)
FLAT = ratio_at_most(1.05)
SHARE = 0.8  # of the most that was measured
ROLES = ("control", "edge", "invoker")
CODE = 'def main(params):\n    return {{"statusCode": 200, "body": "{number}"}}\n'


@dataclass(frozen=True)
class Sizes:
    seconds: float
    connections: int
    rounds: int  # of finding the most
    round_s: float
    every_s: float  # between one change of the version and the next


FULL = Sizes(seconds=60, connections=32, rounds=3, round_s=4, every_s=1)
TINY = Sizes(seconds=2, connections=2, rounds=1, round_s=0.2, every_s=0.5)


class Change(NamedTuple):
    """The version with this number went live, at some moment between these two."""

    number: int
    asked_at: float
    known_at: float


@dataclass
class Answers:
    """Content of each response, with the interval in which its call may have started."""

    numbers: array[int] = field(default_factory=lambda: array("q"))
    since: array[float] = field(default_factory=lambda: array("d"))
    until: array[float] = field(default_factory=lambda: array("d"))

    def note(self, reply: Reply, since: float, until: float) -> None:
        self.numbers.append(int(reply.body))
        self.since.append(since)
        self.until.append(until)


def wrong(changes: Sequence[Change], answers: Answers) -> int:
    """Count the answers of a version that cannot have been live at any moment between the question and the answer."""
    live: dict[int, list[tuple[float, float]]] = {}
    for change, following in zip(changes, [*changes[1:], None], strict=True):
        ends_at = following.known_at if following else float("inf")
        live.setdefault(change.number, []).append((change.asked_at, ends_at))
    return sum(
        not any(start <= until and since <= end for start, end in live.get(number, ()))
        for number, since, until in zip(answers.numbers, answers.since, answers.until, strict=True)
    )


class Changer:
    """Deploys and rolls back, in a thread of its own, and watches the memory meanwhile."""

    def __init__(self, platform: Platform, every_s: float) -> None:
        self.changes: list[Change] = []
        self.memory: list[float] = []  # megabytes, one sample for each change
        self.error: Exception | None = None
        self._platform = platform
        self._every_s = every_s
        self._numbers: dict[int, int] = {}  # what each version answers
        self._draw = random.Random(7)
        self._pids = [platform.process(role) for role in ROLES]

    def create(self) -> None:
        asked_at = time.perf_counter()
        made = self._platform.create("soak", "python", CODE.format(number=0))
        self._note(made["currentVersion"], 0, asked_at)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        stopping = threading.Event()
        thread = threading.Thread(target=self._run, args=(stopping,))
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()
        if self.error is not None:
            raise self.error

    def _run(self, stopping: threading.Event) -> None:
        try:
            while not stopping.wait(self._every_s):
                self._change()
                self.memory.append(machine.memory_of(self._pids).rss_mb)
        except Exception as error:
            self.error = error

    def _change(self) -> None:
        """Make every third change a rollback."""
        number, asked_at = len(self.changes), time.perf_counter()
        if number % 3:
            made = self._platform.deploy("soak", "python", CODE.format(number=number))
            self._note(made["currentVersion"], number, asked_at)
            return
        version = self._draw.choice(list(self._numbers))
        self._platform.call("POST", "/v1/functions/soak/rollback", {"version": version})
        self._note(version, self._numbers[version], asked_at)

    def _note(self, version: int, number: int, asked_at: float) -> None:
        self._numbers[version] = number
        self.changes.append(Change(number, asked_at, time.perf_counter()))


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with function_platform.running(folder) as platform, on_core(CLIENT_CORE):
        changer = Changer(platform, sizes.every_s)
        changer.create()
        answers = Answers()
        with Sockets(platform.edge_port, [get(platform.path("soak"))], sizes.connections) as sockets:
            tried = [expect_all(sockets.run(sizes.round_s)) for _ in range(sizes.rounds)]
            rate = median([each.answered / each.seconds for each in tried]) * SHARE
            with changer.going_on():
                done = sockets.run(sizes.seconds, rate=rate, on_answer=answers.note)
        asked = sum(each.answered for each in tried) + done.answered + done.failed
        lost = asked - platform.invoked("soak")
    for failure in done.failures:
        print(f"functions soak: FAILED: {failure}", flush=True)
    before, after = _early_and_late(changer.memory)
    return [
        Figure("functions soak: answers of a wrong version", wrong(changer.changes, answers), "", bar=NONE),
        Figure("functions soak: records lost or counted twice", abs(lost), "", bar=NONE),
        Figure("functions soak: calls that failed", done.failed, "", bar=NONE),
        Figure("functions soak: memory at the end", after, "MB", before, "after a quarter", FLAT),
        Figure("functions soak: requests/s", done.answered / done.seconds, "/s", rate, "80 % of the most"),
        Figure("functions soak: p99", percentile(done.latencies, 0.99) * 1000, "ms"),
        Figure("functions soak: versions that went live", len(changer.changes), ""),
        Figure("functions soak: seconds", done.seconds, "s"),
    ]


def _early_and_late(samples: Sequence[float]) -> tuple[float, float]:
    """Return the memory after a quarter of the time and at the end, each as the middle of a tenth of the samples."""
    width, quarter = max(1, len(samples) // 10), len(samples) // 4
    return median(samples[quarter : quarter + width]), median(samples[-width:])
