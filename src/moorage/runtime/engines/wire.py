"""Messages between control process and shim: one JSON line each.

A replica's spec has its field names as they are; its state has them in camelCase.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from moorage.runtime.engines.ports import AppSpec, ReplicaSpec, ReplicaState, RunSpec, ServerSpec

SOCKET = "shim.sock"
IDENTITY_FILE = "shim.json"  # identity of the process at the socket: key, pid, started, port; volume or null
MAX_KEY_BYTES = 128
MAX_LINE_BYTES = 1 << 20
KINDS: dict[str, type[ReplicaSpec]] = {"app": AppSpec, "server": ServerSpec, "run": RunSpec}
_NAMES = {kind: name for name, kind in KINDS.items()}


def spec_line(spec: ReplicaSpec) -> bytes:
    return line({"kind": _NAMES[type(spec)], **asdict(spec)})


def read_spec(line: bytes) -> ReplicaSpec:
    """Parse a spec; raises ValueError or TypeError if it is invalid."""
    message = json.loads(line)
    try:
        return KINDS[message.pop("kind")](**message)
    except (AttributeError, KeyError) as error:
        raise ValueError(f"not a spec: {error}") from error


def state_json(state: ReplicaState) -> dict[str, Any]:
    return {_camel(field.name): getattr(state, field.name) for field in fields(state)}


def read_state(message: dict[str, Any]) -> ReplicaState:
    """Read a state; the shim of an earlier version may lack fields with a default."""
    names = {field.name: _camel(field.name) for field in fields(ReplicaState)}
    return ReplicaState(**{name: message[key] for name, key in names.items() if key in message})


def line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
