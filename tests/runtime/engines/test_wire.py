"""Messages between engine and shim."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moorage.runtime.engines import wire
from moorage.runtime.engines.local_specs import LocalFiles, ShimApp, ShimRun, ShimServer, ShimSpec
from moorage.runtime.engines.ports import Address, ReplicaState

COMMON: dict[str, Any] = {
    "key": "r1",
    "token": "t",
    "argv": ["node"],
    "env": {"A": "ü\n"},
    "hidden": ["s"],
    "log": "/l",
    "files": LocalFiles(release="/r", binds={"/a": "/b"}),
}
SPECS = [ShimApp(**COMMON), ShimServer(**COMMON, port=5432), ShimRun(**COMMON, timeout_s=60, result="/c1.json")]


@pytest.mark.parametrize("spec", SPECS)
def test_a_spec_of_each_kind_is_one_line_and_comes_back_whole(spec: ShimSpec) -> None:
    line = wire.spec_line(spec)

    assert line.count(b"\n") == 1
    assert wire.read_spec(line) == spec


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"{}", b'{"kind": "other"}', b'{"kind": "app", "key": "r1", "colour": "red"}']
)
def test_what_is_no_description_is_refused(line: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        wire.read_spec(line)


def test_a_state_comes_back_whole_and_speaks_camel_case() -> None:
    state = ReplicaState("r1", 7, 8, 20_000, "waiting", app_pid=9, exit_code=3, reason="why", cpu_us=5)

    told = json.loads(wire.line(wire.state_json(state)))

    assert wire.read_state(told) == state
    assert {"isListening", "appPid", "exitCode", "cpuUs", "memoryBytes", "diskBytes"} <= set(told)


def test_a_state_of_an_earlier_shim_lacks_newer_fields() -> None:
    message = wire.state_json(ReplicaState("r1", 5, 7, 21_000, "running", is_listening=True))
    del message["otherPort"]

    assert wire.read_state(message) == ReplicaState("r1", 5, 7, 21_000, "running", is_listening=True)


def test_the_state_of_an_earlier_shim_has_the_address_of_this_machine() -> None:
    message = wire.state_json(ReplicaState("r1", 5, 7, 21_000, "running"))
    del message["host"]

    address = wire.read_state(message).address

    assert str(address) == "127.0.0.1:21000"
    assert str(Address(21_000, "fd00::1")) == "[fd00::1]:21000"
