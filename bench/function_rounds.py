"""Load function hosts in alternating rounds, so that other load of the machine affects all alike."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench import machine
from bench.figures import median
from bench.function_load import Generator, Measured
from bench.function_peers import Target

QUIET_SHARE = 0.03  # of the core: what a host may use and still count as quiet
QUIET_LOOK_S = 0.2
QUIET_WAIT_S = 20.0


@dataclass(frozen=True)
class Plan:
    rounds: int
    seconds: float  # of one load
    warm_up: int  # requests to each target before anything is measured
    connections: tuple[int, ...]


@dataclass(frozen=True)
class Sample:
    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float  # of the whole tree of processes, for one request, until it was quiet again


Samples = dict[tuple[str, int], list[Sample]]  # by name of the target and number of connections


def measure(targets: Sequence[Target], generator: Generator, plan: Plan) -> Samples:
    for target in targets:
        warm_up(target, generator, plan)
    samples: Samples = {}
    for _ in range(plan.rounds):
        for connections in plan.connections:
            for target in targets:
                samples.setdefault((target.name, connections), []).append(_sample(target, generator, connections, plan))
    return samples


def middle(samples: Samples, name: str, connections: int, field: str) -> float | None:
    """Return the median of a field over the rounds, or None where that target was not measured."""
    found = samples.get((name, connections))
    return median([getattr(sample, field) for sample in found]) if found else None


def warm_up(target: Target, generator: Generator, plan: Plan) -> None:
    answered = 0
    while answered < plan.warm_up:
        answered += _drive(target, generator, max(plan.connections), plan).answered


def _sample(target: Target, generator: Generator, connections: int, plan: Plan) -> Sample:
    before = wait_until_quiet(target)
    done = _drive(target, generator, connections, plan)
    # What a host puts off until after the load, such as storing records, belongs to the price of a request too; and it
    # must not fall on the next target, which has the same core.
    spent = wait_until_quiet(target) - before
    return Sample(done.rate, done.p50_ms, done.p99_ms, spent / done.answered * 1e6)


def _drive(target: Target, generator: Generator, connections: int, plan: Plan) -> Measured:
    return generator.drive(target.port, target.paths, connections=connections, seconds=plan.seconds, host=target.host)


def wait_until_quiet(target: Target) -> float:
    """Wait until the tree of processes hardly uses the core any more, and return the CPU seconds it has used."""
    deadline = time.monotonic() + QUIET_WAIT_S
    used = machine.tree_cpu_seconds(target.pid)
    while time.monotonic() < deadline:
        time.sleep(QUIET_LOOK_S)
        before, used = used, machine.tree_cpu_seconds(target.pid)
        if used - before < QUIET_SHARE * QUIET_LOOK_S:
            break
    return used
