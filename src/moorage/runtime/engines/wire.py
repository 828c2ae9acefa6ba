"""Messages between control process and shim: one JSON line each.

A replica's spec has its field names as they are; its state has them in camelCase.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from moorage.runtime.engines.local_specs import LocalFiles, ShimApp, ShimRun, ShimServer, ShimSpec
from moorage.runtime.engines.ports import ReplicaState

SOCKET = "shim.sock"
IDENTITY_FILE = "shim.json"  # identity of the process at the socket: key, pid, started, port; volume or null
MAX_KEY_BYTES = 128
MAX_LINE_BYTES = 1 << 20
KINDS: dict[str, type[ShimSpec]] = {"app": ShimApp, "server": ShimServer, "run": ShimRun}
_NAMES = {kind: name for name, kind in KINDS.items()}


def spec_line(spec: ShimSpec) -> bytes:
    return line({"kind": _NAMES[type(spec)], **asdict(spec)})


def read_spec(line: bytes) -> ShimSpec:
    """Parse a spec; raises ValueError or TypeError if it is invalid."""
    message = json.loads(line)
    try:
        files = LocalFiles(**message.pop("files", {}))
        return KINDS[message.pop("kind")](**message, files=files)
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
