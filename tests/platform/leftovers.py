"""End of the workloads that a platform of the tests leaves: apps, databases and runs outlive it by design."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bench.apps_platform import end_all


@contextlib.contextmanager
def ended_workloads(data: Path) -> Iterator[None]:
    """End the workloads of a data folder at the exit. The platform must have ended before."""
    try:
        yield
    finally:
        for kind in ("shims", "databases", "cronjobs"):
            end_all(data, kind)
