"""How a replica is told to its shim, and what the shim tells of it: one line of JSON each, with names in camelCase."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from moorage.runtime.engines.ports import ReplicaSpec, ReplicaState

SOCKET = "shim.sock"
CARD = "shim.json"  # tells which process serves the socket: key, pid, started, port; and the volume, if any
LONGEST_KEY = 128
LONGEST_LINE = 1 << 20


def spec_line(spec: ReplicaSpec) -> bytes:
    return json.dumps(asdict(spec)).encode() + b"\n"


def read_spec(line: bytes) -> ReplicaSpec:
    """Read a description; raises ValueError or TypeError where it is none."""
    return ReplicaSpec(**json.loads(line))


def state_json(state: ReplicaState) -> dict[str, Any]:
    return {_camel(field.name): getattr(state, field.name) for field in fields(state)}


def read_state(told: dict[str, Any]) -> ReplicaState:
    return ReplicaState(**{field.name: told[_camel(field.name)] for field in fields(ReplicaState)})


def line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
