"""A hundred functions, called at random, beside workerd with as many services behind a router."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import function_load, function_peers, function_platform, function_rounds
from bench.figures import Figure, ratio_at_least
from bench.function_peers import WORKERD, Target
from bench.function_platform import HELLO, Platform, in_parallel
from bench.function_rounds import Plan, Samples, middle

BAR = ratio_at_least(1.8)


@dataclass(frozen=True)
class Sizes:
    plan: Plan
    functions: int
    with_peers: bool


FULL = Sizes(Plan(rounds=3, seconds=4, warm_up=12_000, connections=(32,)), functions=100, with_peers=True)
TINY = Sizes(Plan(rounds=1, seconds=0.1, warm_up=1, connections=(2,)), functions=2, with_peers=False)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    generator = function_load.best() if sizes.with_peers else function_load.Own()
    with ExitStack() as stack:
        platform = stack.enter_context(function_platform.running(folder / "moorage"))
        targets = [_functions(platform, language, sizes.functions) for language in HELLO]
        if sizes.with_peers and WORKERD in function_peers.installed():
            peer = function_peers.serving(WORKERD, folder / WORKERD, functions=sizes.functions)
            targets.append(stack.enter_context(peer))
        samples = function_rounds.measure(targets, generator, sizes.plan)
    return [figure for language in HELLO for figure in _figures(samples, language, sizes)]


def _functions(platform: Platform, language: str, count: int) -> Target:
    names = [f"many-{language}-{number}" for number in range(count)]
    platform.create_many(names, language, HELLO[language])
    in_parallel(lambda name: platform.wait_until_served(platform.path(name)), names)
    return platform.target(language, names)


def _figures(samples: Samples, language: str, sizes: Sizes) -> list[Figure]:
    clients = max(sizes.plan.connections)
    name = f"functions many, {sizes.functions} {language} c={clients}"

    def pair(field: str) -> tuple[float, float | None]:
        value = middle(samples, language, clients, field)
        assert value is not None
        return value, middle(samples, WORKERD, clients, field)

    rate, tail, cpu = pair("rate"), pair("p99_ms"), pair("cpu_us")
    return [
        Figure(f"{name}: requests/s", rate[0], "/s", rate[1], WORKERD, BAR),
        Figure(f"{name}: p99", tail[0], "ms", tail[1], WORKERD),
        Figure(f"{name}: CPU/request", cpu[0], "us", cpu[1], WORKERD),
    ]
