"""Spans: exported to a real collector if one is configured, and free otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.core.telemetry.conftest import WANTED, Told

pytestmark = pytest.mark.group("telemetry")


def test_requests_and_jobs_become_spans_with_the_trace_id_of_the_answer(told: Told) -> None:
    assert told.spans.keys() >= WANTED
    assert told.spans["POST /v1/orgs"]["moorage.trace_id"] == "made-an-org"


def test_without_a_collector_the_libraries_are_not_even_imported() -> None:
    program = "import sys, moorage.platform.control; print('opentelemetry.sdk' in sys.modules)"

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ended.stdout.strip() == "False"
