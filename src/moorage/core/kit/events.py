"""An event of a stream that clients follow."""

from __future__ import annotations

from typing import Any

from moorage.core.kit.records import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    data: Any
    id: str | None = None
