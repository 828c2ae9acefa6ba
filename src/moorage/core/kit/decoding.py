"""Typed decoders of JSON, safe in several threads.

msgspec describes a type at its first use and keeps the description on the class. It runs Python code meanwhile, so
another thread can find a description that is incomplete, and the process ends with a segmentation fault.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_lock = threading.Lock()


def _decode_other(kind: type, value: Any) -> Any:
    """Decode a type that msgspec does not know: paths are texts."""
    if issubclass(kind, Path) and isinstance(value, str):
        return kind(value)
    raise NotImplementedError(f"{kind} cannot be decoded from JSON")


def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]:
    decoder = _decoders.get(kind)
    if decoder is None:
        with _lock:
            decoder = _decoders[kind] = msgspec.json.Decoder(kind, dec_hook=_decode_other)
    return decoder


def decode(text: bytes | str, kind: type[T]) -> T:
    """Decode JSON; raises msgspec.DecodeError, or its subclass msgspec.ValidationError for another type."""
    return decoder_of(kind).decode(text)


def convert(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """Convert decoded JSON to a type; raises msgspec.ValidationError."""
    decoder_of(kind)
    return msgspec.convert(value, kind, strict=strict)
