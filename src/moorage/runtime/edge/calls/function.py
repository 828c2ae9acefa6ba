"""A function in the edge: a revision of its route, instances, waiting calls."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from moorage.core.kit import masking
from moorage.runtime.workers import frames

LOG_LIMIT = 10 * 2**20
RESULT_LIMIT = 6 * 2**20
SCALE_UP_WAIT_US = 5000  # expected wait in the queue from which another instance is started
SCALE_UP_WAIT_S = SCALE_UP_WAIT_US / 1e6
SHORT_CALL_US = 2000  # Calls that take less may wait in an instance's socket.
MAX_DEPTH = 64
MIN_SAMPLES = 20  # before calls may wait in a socket
MAX_SLOW_SHARE = 0.1  # of recent calls, for calls to count as short: on a busy machine any call may be slow
SAMPLE_ALL_BELOW = 100  # samples; from then on only each SAMPLE_EVERY-th short call is measured
SAMPLE_EVERY = 8
# Run time from which a call blocks its instance: before MIN_SAMPLES, and with calls known to be short, where the cause
# is probably a busy machine or this one call.
STUCK_AFTER_S, SHORT_STUCK_AFTER_S = 0.05, 0.2
MEAN_WEIGHT = 0.02  # of the latest call in the moving averages
MAX_STARTING = 8  # instances of one function; more would compete for the CPUs


class Route(msgspec.Struct):
    """Settings of a function, as the control process sends them."""

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
    sealed_env: str = ""  # encrypted `env`; only in the route file
    secrets: list[str] = []  # names in `env` whose values must not be shown


class QueuedCall(Protocol):
    """A call, as far as the choice of an instance needs it."""

    started: float

    @property
    def is_alone(self) -> bool: ...


class FunctionInstance(Protocol):
    is_open: bool
    is_loaded: bool

    @property
    def calls(self) -> Sequence[QueuedCall]: ...


CallT = TypeVar("CallT", bound=QueuedCall)
InstanceT = TypeVar("InstanceT", bound=FunctionInstance)


class Function(Generic[CallT, InstanceT]):
    """One revision of a function; another revision is another Function object."""

    __slots__ = (
        "_masker",
        "depth",
        "has_snapshot",
        "id",
        "instances",
        "is_retired",
        "load",
        "load_frame",
        "mean_us",
        "memory_mb",
        "name",
        "org",
        "org_id",
        "own_options",
        "queue",
        "raw_http",
        "route",
        "samples",
        "slow_share",
        "starting",
        "timeout_s",
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
        self.instances: list[InstanceT] = []
        self.queue: deque[CallT] = deque()
        self.starting = 0  # requested sandboxes
        self.samples = 0
        self.slow_share = 0.0  # of the recent calls
        self.mean_us = 0.0
        self.depth = 1  # calls that may be sent to one instance; only the first of them runs
        self.is_retired = False
        self.has_snapshot = False
        self._masker: masking.Masker | None = None
        self.load = _load(route, api_host)
        body = msgspec.json.encode(self.load)
        self.load_frame = frames.HEAD.pack(len(body) + 1, frames.LOAD) + body

    def hide(self, message: str) -> str:
        """Mask the values of secrets in an error message, which anyone may see."""
        if not self.route.secrets:
            return message
        if self._masker is None:
            self._masker = masking.Masker(value for name, value in self.route.env if name in self.route.secrets)
        return self._masker(message)

    def observe(self, run_us: int, number: int) -> None:
        """Measure the run time of a call; of many short calls only each eighth."""
        if run_us >= SHORT_CALL_US or self.samples < SAMPLE_ALL_BELOW:
            self.add_sample(run_us)
        elif not number % SAMPLE_EVERY:
            self.add_sample(run_us, SAMPLE_EVERY)

    def add_sample(self, run_us: int, calls: int = 1) -> None:
        self.samples += calls
        weight = 1 / self.samples if self.samples < 50 else MEAN_WEIGHT * calls
        self.mean_us += (run_us - self.mean_us) * weight
        self.slow_share += ((run_us >= SHORT_CALL_US) - self.slow_share) * weight
        if self.samples < MIN_SAMPLES or self.slow_share >= MAX_SLOW_SHARE:
            self.depth = 1
        else:
            # Sent calls cannot be recalled, so only as many as run within SHORT_CALL_US may wait in a socket.
            self.depth = max(1, min(MAX_DEPTH, int(SHORT_CALL_US / (self.mean_us + 1))))

    def missing_instances(self) -> int:
        """Return the number of additional instances that the waiting calls need.

        Long calls need one each. Short calls need one more if the expected wait is long because of the calls
        themselves: more processes do not make a busy machine faster.
        """
        # Includes instances that load their code; else a slow load would add instances at every check.
        coming = self.starting + sum(not instance.is_loaded for instance in self.instances)
        if not self.instances:
            return 1 - coming
        if self.mean_us >= SHORT_CALL_US:
            return min(len(self.queue), MAX_STARTING) - coming
        if self._is_stuck():
            return (1 if self.samples >= MIN_SAMPLES else min(len(self.queue), MAX_STARTING)) - coming
        held = min(len(instance.calls) for instance in self.instances)
        return 0 if (held + len(self.queue)) * self.mean_us < SCALE_UP_WAIT_US else 1 - coming

    def _is_stuck(self) -> bool:
        """Whether every instance has run one call for longer than short calls take."""
        long_ago = time.perf_counter() - (STUCK_AFTER_S if self.samples < MIN_SAMPLES else SHORT_STUCK_AFTER_S)
        return all(instance.calls and instance.calls[0].started < long_ago for instance in self.instances)

    def find_instance(self, call: QueuedCall, now: float) -> InstanceT | None:
        """Return an instance that can take a call now.

        Short calls go to the first instance that is not blocked: on one socket they cost fewer wake-ups than on
        several. Long calls need an idle instance.
        """
        for instance in self.instances:
            if instance.is_open:
                calls = instance.calls
                if not calls:
                    return instance
                if len(calls) < self.depth and not call.is_alone and calls[0].started > now - SCALE_UP_WAIT_S:
                    return instance
        return None


AnyFunction = Function[Any, Any]  # for modules that use neither its calls nor its instances


def _load(route: Route, api_host: str) -> dict[str, Any]:
    """Return the payload of the LOAD frame."""
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
