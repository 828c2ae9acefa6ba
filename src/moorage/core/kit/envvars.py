"""Environment variables as they are stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from moorage.core.kit.decoding import decoder_of

ENV_BYTES = 64 * 1024  # of all names and values of a resource's variables, and as many of its secrets
MAX_ENV_ENTRIES = 1000
TOO_MANY_BYTES = f"should have at most {ENV_BYTES // 1024} KB in all"


class _Named(Protocol):
    name: str
    value: str


class EnvOut(msgspec.Struct, frozen=True):
    name: str
    value: str


def size_of(name: str, value: str) -> int:
    """Return the bytes of a variable that count towards ENV_BYTES."""
    return len(name.encode()) + len(value.encode())


def env_text(env: Iterable[_Named]) -> str:
    """Encode variables for the database."""
    return msgspec.json.encode([EnvOut(item.name, item.value) for item in env]).decode()


read_env = decoder_of(list[EnvOut]).decode
