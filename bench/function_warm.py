"""Warm functions: a greeting, compared with other function hosts."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import function_load, function_peers, function_platform, function_rounds
from bench.figures import Bar, Figure, at_most, ratio_at_least, ratio_at_most
from bench.function_peers import NODE, NODE_20, PYTHON, WORKERD, Target
from bench.function_platform import HELLO, Platform
from bench.function_rounds import Plan, Samples, middle

FRAMEWORK_BAR = ratio_at_least(6)
WORKERD_BAR = ratio_at_least(1.6)
TAIL_BAR = at_most(10)
BELOW_THEIRS = ratio_at_most(1)
ALONE_BAR = at_most(0.35)
PEER = {"python": PYTHON, "nodejs": NODE, "nodejs:20": NODE_20}
_RATE = ("requests/s", "/s", "rate")
_HALF = ("p50", "ms", "p50_ms")
_TAIL = ("p99", "ms", "p99_ms")
_CPU = ("CPU/request", "us", "cpu_us")


@dataclass(frozen=True)
class Sizes:
    plan: Plan
    with_peers: bool


FULL = Sizes(Plan(rounds=3, seconds=4, warm_up=12_000, connections=(1, 32)), with_peers=True)
TINY = Sizes(Plan(rounds=1, seconds=0.1, warm_up=1, connections=(1, 2)), with_peers=False)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    generator = function_load.best() if sizes.with_peers else function_load.Own()
    peers = function_peers.installed() if sizes.with_peers else []
    with ExitStack() as stack:
        platform = stack.enter_context(function_platform.running(folder / "moorage"))
        languages = [*HELLO, *(["nodejs:20"] if NODE_20 in peers else [])]
        targets = [_hello(platform, language) for language in languages]
        targets += [stack.enter_context(function_peers.serving(name, folder / name)) for name in peers]
        samples = function_rounds.measure(targets, generator, sizes.plan)
    return [figure for language in languages for figure in _figures(samples, language, sizes.plan)]


def _hello(platform: Platform, language: str) -> Target:
    name = f"hello-{language.replace(':', '-')}"
    platform.create(name, language, HELLO[language.partition(":")[0]])
    platform.wait_until_served(platform.path(name))
    return platform.target(language, [name])


def _figures(samples: Samples, language: str, plan: Plan) -> list[Figure]:
    one, many = min(plan.connections), max(plan.connections)
    peer = PEER[language]

    def figure(quantity: tuple[str, str, str], clients: int, against: str = "", bar: Bar | None = None) -> Figure:
        title, unit, field = quantity
        value, base = middle(samples, language, clients, field), middle(samples, against, clients, field)
        assert value is not None
        return Figure(f"functions warm, {language} c={clients}: {title}", value, unit, base, against, bar)

    return [
        figure(_RATE, many, peer, FRAMEWORK_BAR),
        figure(_RATE, many, WORKERD, WORKERD_BAR),
        figure(_TAIL, many, bar=TAIL_BAR),
        figure(_TAIL, many, peer, BELOW_THEIRS),
        figure(_TAIL, many, WORKERD, BELOW_THEIRS),
        figure(_CPU, many, peer),
        figure(_CPU, many, WORKERD),
        figure(_HALF, one, bar=ALONE_BAR),
        figure(_HALF, one, peer),
        figure(_HALF, one, WORKERD),
    ]
