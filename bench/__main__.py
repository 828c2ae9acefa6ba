"""`python -m bench [names]`: runs the named benchmarks, or all, and prints one table.

The exit code is 1 where a bar was missed. `--fault-seconds` shortens the fault loop, `--soak-seconds` (or the variable
MOORAGE_BENCH_SOAK_S) lengthens the soak of functions; `--quick` makes everything tiny, to see that it runs: its figures
mean nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import (
    apps,
    apps_proxy,
    cli,
    console,
    console_idle,
    console_streams,
    create,
    cronjobs,
    databases,
    dockerfiles,
    faults,
    figures,
    first_start,
    flood,
    functions,
    functions_dev,
    idle,
    jobs,
    machine,
    machines,
    monitors,
    projects,
    read,
    redeploy,
    resources,
    static,
    strangers,
)
from bench.figures import Figure

# Each has a `run` that takes a folder and one of its sizes, TINY or FULL.
MEASURED: dict[str, Any] = {
    "read": read,
    "create": create,
    "jobs": jobs,
    "idle": idle,
    "static": static,
    "apps_proxy": apps_proxy,
    "apps": apps,
    "redeploy": redeploy,
    "projects": projects,
    "databases": databases,
    "cronjobs": cronjobs,
    "dockerfiles": dockerfiles,
    "machines": machines,
    "monitors": monitors,
    "flood": flood,
    "strangers": strangers,
    "first_start": first_start,
    "resources": resources,
    "functions_dev": functions_dev,
    "cli": cli,
    "console": console,
    "console_idle": console_idle,
    "console_streams": console_streams,
}
NAMES = (*MEASURED, "faults", *functions.NAMES)
GROUPS = {"functions": functions.NAMES}


def main() -> int:
    given = _arguments()
    names = [name for each in given.names or NAMES for name in GROUPS.get(each, (each,))]
    for variable in [name for name in os.environ if name.startswith("MOORAGE_")]:
        del os.environ[variable]  # The settings of whoever runs this are not what is measured.
    # In the current folder, not in /tmp: that is often a memory file system, on which durability costs nothing.
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd(), ignore_cleanup_errors=True) as folder:
        print(f"machine: {machine.describe(Path(folder))}", flush=True)
        if machine.filesystem_of(Path(folder)) in machine.IN_MEMORY:
            print("bench: this folder is not on a disk; run it from one that is", file=sys.stderr)
            return 2
        measured: list[Figure] = []
        for name in names:
            measured += _run(name, Path(folder) / name, given)
    print(f"\n{figures.table(measured)}")
    return 1 if any(figure.is_missed for figure in measured) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the bars that Moorage has to clear.")
    names = [*NAMES, *GROUPS]
    parser.add_argument("names", nargs="*", choices=[*names, []], metavar="name", help=", ".join(names))
    parser.add_argument("--fault-seconds", type=float, default=faults.FULL.seconds, help="how long faults goes on")
    soak = float(os.environ.get("MOORAGE_BENCH_SOAK_S") or functions.SOAK_S)
    parser.add_argument("--soak-seconds", type=float, default=soak, help="how long the soak of functions goes on")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    return parser.parse_args()


def _run(name: str, folder: Path, given: argparse.Namespace) -> list[Figure]:
    folder.mkdir()
    started, stolen_before = time.monotonic(), machine.stolen_seconds()
    found = _measure(name, folder, given)
    elapsed_s = time.monotonic() - started
    stolen = (machine.stolen_seconds() - stolen_before) / elapsed_s / (os.cpu_count() or 1)
    print(f"{name}: measured in {elapsed_s:.0f} s, {stolen:.1%} of the CPU time stolen by the host", flush=True)
    return found


def _measure(name: str, folder: Path, given: argparse.Namespace) -> list[Figure]:
    quick: bool = given.quick
    if name in MEASURED:
        module = MEASURED[name]
        measured: list[Figure] = module.run(folder, module.TINY if quick else module.FULL)
        return measured
    if name in functions.NAMES:
        return functions.run(name, folder, quick=quick, soak_s=given.soak_seconds)
    return faults.run(folder, faults.TINY if quick else replace(faults.FULL, seconds=given.fault_seconds))


if __name__ == "__main__":
    sys.exit(main())
