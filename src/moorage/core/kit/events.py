"""An event of a stream that clients follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    data: Any
    id: str | None = None
