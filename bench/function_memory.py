"""Memory of an idle instance, and of a thousand of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from bench import function_platform, machine, processes
from bench.figures import Figure, at_most
from bench.function_platform import HELLO, MAIN, Platform, in_parallel

BAR = {"python": at_most(4), "nodejs": at_most(10)}
NO_FAILURES = at_most(0)
SHOWN = 5


@dataclass(frozen=True)
class Sizes:
    instances: int  # of each language, each of a function of its own
    settle_s: float
    functions: int  # Python functions that are deployed and called once


FULL = Sizes(instances=30, settle_s=2, functions=1_000)
TINY = Sizes(instances=2, settle_s=0.1, functions=3)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with function_platform.running(folder) as platform:
        idle = [_idle(platform, language, sizes) for language in HELLO]
        return [*idle, *_thousand(platform, sizes)]


def _idle(platform: Platform, language: str, sizes: Sizes) -> Figure:
    names = [f"idle-{language}-{number}" for number in range(sizes.instances)]
    platform.create_many(names, language, HELLO[language])
    in_parallel(lambda name: platform.wait_until_served(platform.path(name)), names)
    time.sleep(sizes.settle_s)
    cells = instances(platform, language)
    if len(cells) < sizes.instances:
        raise processes.NotReady(f"{len(cells)} cells hold a function, not {sizes.instances}: is the sandbox on?")
    pss_mb = sum(machine.memory_of(cell).pss_mb for cell in cells)
    return Figure(f"functions memory, {language}: idle instance, PSS", pss_mb / len(cells), "MB", bar=BAR[language])


def instances(platform: Platform, language: str) -> list[list[int]]:
    """Return the processes of each loaded function sandbox, found by the first process of its PID namespace."""
    firsts = [pid for pid in machine.tree_of(platform.process("invoker")) if _is_first(pid)]
    return [machine.tree_of(pid) for pid in firsts if Path(f"/proc/{pid}/root/code/{MAIN[language]}").exists()]


def _is_first(pid: int) -> bool:
    """Tell whether a process is number 1 of a process namespace inside the one we are in."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
    return len(numbers) > 1 and numbers[-1] == "1"


def _thousand(platform: Platform, sizes: Sizes) -> list[Figure]:
    names = [f"one-of-many-{number}" for number in range(sizes.functions)]
    started = time.perf_counter()
    platform.create_many(names, "python", HELLO["python"])
    deployed = time.perf_counter()
    answers = in_parallel(lambda name: function_platform.get(platform.edge_port, platform.path(name)), names)
    called = time.perf_counter()
    failures = [answer for answer in answers if answer[0] != 200]
    for status, body in failures[:SHOWN]:
        print(f"functions memory: FAILED: {status} {body!r}", flush=True)
    title = f"functions memory, {sizes.functions} Python functions"
    memory = machine.memory_of_tree(platform.pid)
    return [
        Figure(f"{title}: calls that failed", len(failures), "", bar=NO_FAILURES),
        Figure(f"{title}: deploys", sizes.functions / (deployed - started), "/s"),
        Figure(f"{title}: first calls", sizes.functions / (called - deployed), "/s"),
        Figure(f"{title}: the whole platform, PSS", memory.pss_mb, "MB"),
    ]
