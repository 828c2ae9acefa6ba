"""CPU time of the server for an open tab of the console with an event stream, while no event happens.

Each stream costs a few milliseconds a minute, so the windows are longer than those of `console_idle`.
"""

from __future__ import annotations

from pathlib import Path

from bench import console_idle
from bench.console_idle import STREAMS, Sizes
from bench.figures import Figure

FULL = Sizes(projects=1, idle_s=30, settle_s=2, quiet_s=15, pages=tuple(STREAMS), windows=2)
TINY = Sizes(projects=1, idle_s=0.5, settle_s=0.1, quiet_s=0.1, pages=("activity, a stream",), has_resources=False)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    return console_idle.run(folder, sizes)
