"""A function as the gateway knows it: one revision of its route, its instances, and the calls that wait for one."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from moorage.runtime.edge.calls.call import Call
from moorage.runtime.workers import frames

if TYPE_CHECKING:
    from moorage.runtime.edge.calls.instance import Instance

LOG_LIMIT = 10 * 2**20
RESULT_LIMIT = 6 * 2**20
WORTH_US = 5000  # a wait that makes another instance worth its start
WORTH_S = WORTH_US / 1e6
SHORT_US = 2000  # calls that take less than this may wait in an instance's socket
DEEPEST = 64
KNOWN = 20  # calls that have to be seen before any may wait in a socket
MOSTLY = 0.1  # of the recent calls may be slow where calls count as short: a busy machine makes any call slow
SAMPLED_FROM = 100  # calls on
SAMPLE = 8  # of so many short calls one is looked at: what calls take changes slowly
# How long a call may hold up others before there is another instance: where calls seem short, and where they are known
# to be, so that it is the machine that is slow, or just this one.
PATIENCE_S, LONG_PATIENCE_S = 0.05, 0.2
MEMORY = 0.02  # weight of the latest call in what is remembered of all
STARTING_AT_ONCE = 8  # instances of one function; more would fight each other for the processors


class Route(msgspec.Struct):
    """What the control process says about a function."""

    id: int
    org: str
    name: str
    revision: int
    version: int
    runtime: str
    digest: str
    main: str
    timeout_ms: int
    memory_mb: int
    env: list[tuple[str, str]]
    network: str = "internet"
    raw_http: bool = False
    own_options: bool = False
    sealed_env: str = ""  # on disk only, in the place of `env`


class Function:
    """Never changes what it runs: another revision of the route is another Function."""

    __slots__ = (
        "depth",
        "has_template",
        "id",
        "instances",
        "is_gone",
        "learned",
        "load",
        "load_frame",
        "memory_mb",
        "name",
        "org",
        "org_id",
        "own_options",
        "queue",
        "raw_http",
        "route",
        "slow_share",
        "starting",
        "timeout_s",
        "usual_us",
        "version",
    )

    def __init__(self, route: Route, api_host: str) -> None:
        self.route = route
        self.id = route.id
        self.org = route.org
        self.org_id = int(route.org)
        self.name = route.name
        self.version = route.version
        self.memory_mb = route.memory_mb
        self.timeout_s = route.timeout_ms / 1000
        self.raw_http = route.raw_http
        self.own_options = route.own_options
        self.instances: list[Instance] = []
        self.queue: deque[Call] = deque()
        self.starting = 0  # cells that were asked for
        self.learned = 0
        self.slow_share = 0.0  # of the recent calls
        self.usual_us = 0.0
        self.depth = 1  # calls that an instance may hold; only the first of them runs
        self.is_gone = False
        self.has_template = False
        self.load = _load(route, api_host)
        body = msgspec.json.encode(self.load)
        self.load_frame = frames.HEAD.pack(len(body) + 1, frames.LOAD) + body

    def hear(self, run_us: int, number: int) -> None:
        """Let a finished call show how long calls take, or one of a few stand for them where they are short and many.

        A slow one only stands for itself.
        """
        if run_us >= SHORT_US or self.learned < SAMPLED_FROM:
            self.learn(run_us)
        elif not number % SAMPLE:
            self.learn(run_us, SAMPLE)

    def learn(self, run_us: int, calls: int = 1) -> None:
        self.learned += calls
        weight = 1 / self.learned if self.learned < 50 else MEMORY * calls
        self.usual_us += (run_us - self.usual_us) * weight
        self.slow_share += ((run_us >= SHORT_US) - self.slow_share) * weight
        if self.learned < KNOWN or self.slow_share >= MOSTLY:
            self.depth = 1
        else:
            # What waits in a socket cannot be called back, so no more than is done in a moment may.
            self.depth = max(1, min(DEEPEST, int(SHORT_US / (self.usual_us + 1))))

    def missing(self) -> int:
        """Return how many more instances the calls that wait are worth.

        Where calls are long it is one for each. Where they are short it is another one, and only when the queue takes
        time because of the calls themselves: a busy machine is not made quicker by more processes.
        """
        # What loads its code is as good as there: without this, a slow load would bring more with every look.
        coming = self.starting + sum(not instance.is_loaded for instance in self.instances)
        if not self.instances:
            return 1 - coming
        if self.usual_us >= SHORT_US:
            return min(len(self.queue), STARTING_AT_ONCE) - coming
        if self._is_stuck():
            return (1 if self.learned >= KNOWN else min(len(self.queue), STARTING_AT_ONCE)) - coming
        held = min(len(instance.calls) for instance in self.instances)
        return 0 if (held + len(self.queue)) * self.usual_us < WORTH_US else 1 - coming

    def _is_stuck(self) -> bool:
        """Tell whether every instance has been at one call for a time that short ones hardly ever take."""
        long_ago = time.perf_counter() - (PATIENCE_S if self.learned < KNOWN else LONG_PATIENCE_S)
        return all(instance.calls and instance.calls[0].started < long_ago for instance in self.instances)

    def find_instance(self, call: Call, now: float) -> Instance | None:
        """Return an instance that can take a call now.

        Where calls are short they go to the first instance that is not held up: together they cost fewer wake-ups than
        spread over many. Where they are not, only an instance that does nothing will do.
        """
        for instance in self.instances:
            if instance.is_open:
                calls = instance.calls
                if not calls:
                    return instance
                if len(calls) < self.depth and not call.is_alone and calls[0].started > now - WORTH_S:
                    return instance
        return None


def _load(route: Route, api_host: str) -> dict[str, Any]:
    """Return what a cell is told about the function it becomes."""
    namespace = f"org-{route.org}"
    return {
        "main": route.main,
        "env": route.env,
        "api_host": api_host,
        "namespace": namespace,
        "action": f"/{namespace}/default/{route.name}",
        "version": str(route.version),
        "log_limit": LOG_LIMIT,
        "result_limit": RESULT_LIMIT,
    }
