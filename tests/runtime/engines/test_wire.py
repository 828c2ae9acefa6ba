"""Messages between engine and shim."""

from __future__ import annotations

import json

import pytest

from moorage.runtime.engines import wire
from moorage.runtime.engines.ports import ReplicaSpec, ReplicaState

SPEC = ReplicaSpec(
    key="r1", token="t", release="/r", base="", argv=["node"], env={"A": "ü\n"}, binds={}, hidden=["s"], log_folder="/l"
)


def test_a_description_is_one_line_and_comes_back_whole() -> None:
    line = wire.spec_line(SPEC)

    assert line.count(b"\n") == 1
    assert wire.read_spec(line) == SPEC


@pytest.mark.parametrize("line", [b"", b"[]", b"{}", b'{"key": "r1", "colour": "red"}'])
def test_what_is_no_description_is_refused(line: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        wire.read_spec(line)


def test_a_state_comes_back_whole_and_speaks_camel_case() -> None:
    state = ReplicaState("r1", 7, 8, 20_000, "waiting", app_pid=9, exit_code=3, reason="why", cpu_us=5)

    told = json.loads(wire.line(wire.state_json(state)))

    assert wire.read_state(told) == state
    assert {"isListening", "appPid", "exitCode", "cpuUs", "memoryBytes", "diskBytes"} <= set(told)
