"""Regular expressions take linear time on any text: tenants and strangers write most of what is searched.

A search holds the interpreter lock, so one that takes quadratic time stops the control process for minutes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
from tests.architecture.pattern_costs import Found, measure
from tests.architecture.source import ROOT

pytestmark = pytest.mark.deep  # `tests/runtime/builds/test_hostile_text.py` has the known texts.

# Packages that search files of repositories, output of builds and apps, and answers of registries.
PACKAGES = ("runtime.builds", "runtime.images", "runtime.logs", "products.projects", "products.repositories", "gateway")
WAIT_S = 600


@pytest.mark.boundary("tenant-to-tenant", "No text of a tenant makes a regular expression take quadratic time.")
def test_no_pattern_takes_quadratic_time() -> None:
    """Measure CPU time, not elapsed time, and with bounds far from both: other tests use the CPUs at the same time."""
    packages = [f"moorage.{each}" for each in PACKAGES]
    argv = [sys.executable, "-m", "tests.architecture.pattern_costs", *packages]
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}

    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=WAIT_S)

    slow: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert slow == []
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "pattern", [r"(?m)^\s*provider\s*=", r"(?m)^class\s+\w+\([^)]*\bModel\b", r"ERR_FETCH_404[^\n]*\.tgz"]
)
def test_quadratic_patterns_are_found(pattern: str) -> None:
    assert measure(Found(re.compile(pattern), "here", "search"))
