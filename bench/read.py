"""Authenticated reads from SQLite, compared with a bare response and with a usual stack."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench import load, servers
from bench.figures import Figure, median, ratio_at_least, ratio_at_most
from bench.machine import CLIENT_CORE, cpu_seconds, on_core
from bench.servers import BARE, MOORAGE, RIVAL, Serving

CPU_BAR = ratio_at_most(4)
WHOAMI_BAR = ratio_at_most(3)  # at the most connections
RATE_BAR = ratio_at_least(5)
PATHS = ("/v1/account", "/v1/whoami")


@dataclass(frozen=True)
class Sizes:
    rounds: int
    seconds: float  # of one load
    most: int  # requests of one load
    clients: tuple[int, ...]
    seats: int  # users in the store


FULL = Sizes(rounds=5, seconds=0.6, most=50_000, clients=(1, 32), seats=512)
TINY = Sizes(rounds=1, seconds=1.0, most=40, clients=(1, 4), seats=4)


@dataclass(frozen=True)
class Sample:
    cpu_us: float  # of the server, a request
    rate: float  # requests a second


Samples = dict[tuple[str, int, str], list[Sample]]  # by path, clients and kind of server


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    kinds = [BARE, MOORAGE, RIVAL] if servers.has_rival() else [BARE, MOORAGE]
    with ExitStack() as stack:
        up = {kind: stack.enter_context(servers.serving(kind, folder / kind, seats=sizes.seats)) for kind in kinds}
        with on_core(CLIENT_CORE):
            samples = uvloop.run(_measure(up, sizes))
    return [figure for path in PATHS for clients in sizes.clients for figure in _figures(samples, path, clients)]


async def _measure(up: dict[str, Serving], sizes: Sizes) -> Samples:
    """Load the servers in turn, so that other load of this machine affects all of them."""
    samples: Samples = {}
    for number in range(sizes.rounds + 1):
        for path in PATHS:
            for clients in sizes.clients:
                for kind, server in up.items():
                    sample = await _load(server, path, clients, sizes)
                    if number:  # The first round only warms up.
                        samples.setdefault((path, clients, kind), []).append(sample)
    return samples


async def _load(server: Serving, path: str, clients: int, sizes: Sizes) -> Sample:
    requests = [load.get(path, token) for token in server.tokens]
    before = cpu_seconds(server.process.pid)
    done = await load.drive(
        server.port,
        lambda client, _: requests[client % len(requests)],
        clients=clients,
        seconds=sizes.seconds,
        most=sizes.most,
    )
    return Sample((cpu_seconds(server.process.pid) - before) / done.answered * 1e6, done.rate)


def _figures(samples: Samples, path: str, clients: int) -> list[Figure]:
    def middle(kind: str, field: str) -> float:
        return median([getattr(sample, field) for sample in samples[path, clients, kind]])

    name = f"read {path} c={clients}"
    bar = WHOAMI_BAR if (path, clients) == ("/v1/whoami", max(FULL.clients)) else CPU_BAR
    cpu, rate = middle(MOORAGE, "cpu_us"), middle(MOORAGE, "rate")
    found = (path, clients, RIVAL) in samples
    rival, rival_cpu = (middle(RIVAL, "rate"), middle(RIVAL, "cpu_us")) if found else (None, None)
    return [
        Figure(f"{name}: CPU/request", cpu, "us", middle(BARE, "cpu_us"), "bare ASGI", bar),
        Figure(f"{name}: requests/s", rate, "/s", rival, "FastAPI + ORM", RATE_BAR),
        # For information: unlike the rate, it hardly changes with what else the machine does.
        Figure(f"{name}: CPU/request", cpu, "us", rival_cpu, "FastAPI + ORM"),
    ]
