"""Messages between control process and shim: one JSON line each.

A replica's spec has its field names as they are; its state has them in camelCase.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from moorage.runtime.engines.ports import ReplicaSpec, ReplicaState

SOCKET = "shim.sock"
IDENTITY_FILE = "shim.json"  # identity of the process at the socket: key, pid, started, port; volume or null
MAX_KEY_BYTES = 128
MAX_LINE_BYTES = 1 << 20


def spec_line(spec: ReplicaSpec) -> bytes:
    return json.dumps(asdict(spec)).encode() + b"\n"


def read_spec(line: bytes) -> ReplicaSpec:
    """Parse a spec; raises ValueError or TypeError if it is invalid."""
    return ReplicaSpec(**json.loads(line))


def state_json(state: ReplicaState) -> dict[str, Any]:
    return {_camel(field.name): getattr(state, field.name) for field in fields(state)}


def read_state(message: dict[str, Any]) -> ReplicaState:
    return ReplicaState(**{field.name: message[_camel(field.name)] for field in fields(ReplicaState)})


def line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
