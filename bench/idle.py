"""Cost of an idle `moorage up`: CPU, memory, and time until ready."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import machine, processes
from bench.figures import Figure, at_most, median

CPU_BAR = at_most(0.3)
MEMORY_BAR = at_most(150)
CONTROL_MEMORY_BAR = at_most(60)
START_BAR = at_most(1.5)
CONTROL = "moorage.platform.control_start"


@dataclass(frozen=True)
class Sizes:
    idle_s: float
    settle_s: float  # after `ready:`, before anything is measured
    starts: int  # on a data folder that exists


FULL = Sizes(idle_s=20, settle_s=2, starts=5)
TINY = Sizes(idle_s=0.2, settle_s=0.1, starts=1)


@dataclass(frozen=True)
class Up:
    """A running `moorage up`."""

    pid: int
    ready_s: float  # from the start of the command to its `ready:` line


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with up(folder) as first:
        time.sleep(sizes.settle_s)
        control = _control_of(first.pid)
        idle = _measure(first.pid, control, sizes.idle_s)
        if control not in machine.tree_of(first.pid):
            raise processes.NotReady(f"the control process ended while idle: see {folder / 'up.log'}")
        memory, own = machine.memory_of(machine.tree_of(first.pid)), machine.memory_of([control])
    starts = [_start_once(folder) for _ in range(sizes.starts)]
    return [
        Figure("idle: CPU of all processes", idle.percent, "%", bar=CPU_BAR),
        Figure("idle: CPU of the control process", idle.control_percent, "%"),
        Figure("idle: waits of the control process that ended", idle.control_waits, "/s"),
        Figure("idle: memory of all processes, RSS", memory.rss_mb, "MB"),
        Figure("idle: memory of all processes, PSS", memory.pss_mb, "MB", bar=MEMORY_BAR),
        Figure("idle: memory of the control process, PSS", own.pss_mb, "MB", bar=CONTROL_MEMORY_BAR),
        Figure("idle: first start to ready", first.ready_s, "s"),
        Figure("idle: later start to ready", median(starts), "s", bar=START_BAR),
    ]


@contextmanager
def up(folder: Path) -> Iterator[Up]:
    """Run `moorage up` on a data folder, on ports of its own."""
    names = ("api_port", "gateway_port", "edge_port", "metrics_port")
    settings = dict(zip(names, processes.free_ports(len(names)), strict=True))
    env = processes.environment(data=folder / "data", log_format="json", **settings)
    log = folder / "up.log"
    started = time.perf_counter()
    with processes.running([sys.executable, "-m", "moorage.cli.main", "up"], log, env) as process:
        assert process.stdout is not None
        processes.wait_for_line(process.stdout.fileno(), "ready: ", log)
        yield Up(process.pid, time.perf_counter() - started)


def _start_once(folder: Path) -> float:
    with up(folder) as again:
        return again.ready_s


def _control_of(pid: int) -> int:
    return next(each for each in machine.tree_of(pid) if CONTROL in machine.command_of(each))


@dataclass(frozen=True)
class _Idle:
    percent: float  # of a core, all processes
    control_percent: float
    control_waits: float  # per second


def _measure(pid: int, control: int, seconds: float) -> _Idle:
    def read() -> tuple[float, float, float, float]:
        times = (machine.tree_cpu_seconds(pid), machine.cpu_seconds(control))
        return (*times, machine.voluntary_switches(control), time.perf_counter())

    before = read()
    time.sleep(seconds)
    tree, own, waits, elapsed = (after - start for after, start in zip(read(), before, strict=True))
    return _Idle(tree / elapsed * 100, own / elapsed * 100, waits / elapsed)
