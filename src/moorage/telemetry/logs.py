"""Structured logs: one line per event, to standard error, with the trace id of the request or job it belongs to.

Tokens, secrets and bodies never come here: callers log names and ids, and a last processor masks what looks like a
token all the same.
"""

from __future__ import annotations

import re
import sys
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

import msgspec
import structlog

trace: ContextVar[str | None] = ContextVar("trace", default=None)

_TOKEN = re.compile(r"\b(psk_|fnk_|whs_|eyJ)[A-Za-z0-9_.-]{8,}")
_encode = msgspec.json.Encoder(enc_hook=str).encode
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
Event = MutableMapping[str, Any]


def configure(log_format: str, level: str, *, process: str) -> None:
    """Set up logging for this process."""
    as_text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    renderer: Any = structlog.dev.ConsoleRenderer() if as_text else _json_line
    factory: Any = (
        structlog.PrintLoggerFactory(sys.stderr) if as_text else structlog.BytesLoggerFactory(sys.stderr.buffer)
    )
    structlog.configure(
        processors=[
            _with_trace,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _masked,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)


def get_logger(name: str) -> Any:
    return structlog.get_logger(source=name)


def _with_trace(_logger: Any, _method: str, event: Event) -> Event:
    if "trace" not in event and (current := trace.get()) is not None:
        event["trace"] = current
    return event


def _masked(_logger: Any, _method: str, event: Event) -> Event:
    for key, value in event.items():
        if isinstance(value, str) and ("_" in value or "eyJ" in value):
            event[key] = _TOKEN.sub(r"\1****", value)
    return event


def _json_line(_logger: Any, _method: str, event: Event) -> bytes:
    return _encode(event)
