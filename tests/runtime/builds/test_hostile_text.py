"""Files, output and headers that would keep a regular expression busy for hours are searched at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.builds import hostile_work

ROOT = Path(__file__).parents[3]
WAIT_S = 900


@pytest.mark.boundary("tenant-to-tenant", "No text of a tenant makes a regular expression take quadratic time.")
def test_hostile_texts_are_searched_at_once(tmp_path: Path) -> None:
    """Measure CPU time, with a bound of a hundred times the usual, in a process: only its end would stop a search."""
    argv = [sys.executable, "-m", "tests.runtime.builds.hostile_work", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}

    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=WAIT_S)

    times = dict(json.loads(line) for line in done.stdout.splitlines())
    assert {name: cpu_s for name, cpu_s in times.items() if cpu_s >= hostile_work.LIMIT_S} == {}
    assert done.returncode == 0, done.stderr
    assert len(times) > 20
