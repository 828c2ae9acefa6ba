"""Environment variables as they are stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from moorage.core.kit.decoding import decoder_of


class _Named(Protocol):
    name: str
    value: str


class EnvOut(msgspec.Struct, frozen=True):
    name: str
    value: str


def env_text(env: Iterable[_Named]) -> str:
    """Encode variables for the database."""
    return msgspec.json.encode([EnvOut(item.name, item.value) for item in env]).decode()


read_env = decoder_of(list[EnvOut]).decode
