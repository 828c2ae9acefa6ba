"""Structured logs on standard error, with the trace id of request or job.

On a terminal, standard error has warnings and errors as text, and a file in the data folder has every line as JSON.

Callers log names and ids, never tokens, secrets or bodies. As a safeguard, the last processor masks texts that look
like tokens.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from moorage.core.kit.clock import to_wire
from moorage.core.kit.imports import hidden

# structlog imports rich for coloured tracebacks, if it is there: 4 MB and 5 % of the time of all imports. It imports
# greenlet, 1 MB, for threads that this process does not have.
with hidden("rich"), hidden("greenlet"):
    import structlog

trace: ContextVar[str | None] = ContextVar("trace", default=None)

_TOKEN = re.compile(r"\b(psk_|fnk_|whs_|eyJ)[A-Za-z0-9_.-]{8,}")
_encode = msgspec.json.Encoder(enc_hook=str).encode
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
Event = MutableMapping[str, Any]
FLUSH_DELAY_S = 0.02
MAX_FILE_BYTES = 16 * 2**20  # A full file becomes the previous one, which is deleted.
_lines: BufferedLines | None = None
_shows_requests = True
_level = _LEVELS["info"]
_process = ""


def configure(
    log_format: str, level: str, *, process: str, folder: Path | None = None, shows_requests: bool = True
) -> None:
    """Set up logging for this process; beside text, a file in `folder` has every line.

    Then requests, jobs and other lines of level `info` are only in the file, unless `shows_requests`.
    """
    global _lines, _level, _process, _shows_requests
    _level, _process = _LEVELS[level], process
    as_text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    _shows_requests = shows_requests or not as_text or folder is None
    file: Any = RotatingFile(folder / f"{process}.log") if folder is not None else None
    _lines = BufferedLines(file) if as_text and file else None if as_text else BufferedLines(sys.stderr.buffer)
    factory: Any = structlog.PrintLoggerFactory(sys.stderr) if as_text else lambda *_: _lines
    structlog.configure(
        processors=[
            _add_origin,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _mask_tokens,
            *([_write_to_file, structlog.dev.ConsoleRenderer()] if as_text else [_json_line]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )


class AccessLine(msgspec.Struct):
    """One request in the log; its fields contain no text of users to mask."""

    trace: str
    method: str
    route: str
    status: int
    ms: float
    org: int | None
    user: int | None
    client: str
    timestamp: str = ""
    process: str = ""
    source: str = "access"
    event: str = "request"
    level: str = "info"


def access_writer() -> Callable[[AccessLine], None]:
    """Return the writer of access lines; JSON bypasses structlog for speed.

    A terminal shows them only on request; they are in the file beside it.
    """
    lines = _lines
    if lines is None or (_shows_requests and isinstance(lines.file, RotatingFile)):
        logger = get_logger("access")
        shown = AccessLine.__struct_fields__[:8]
        return lambda line: logger.info("request", **{name: getattr(line, name) for name in shown})
    if _level > _LEVELS["info"]:
        return lambda _: None
    msg, process = lines.msg, _process

    def write(line: AccessLine) -> None:
        line.timestamp = to_wire(time.time_ns() // 1_000_000)
        line.process = process
        msg(_encode(line))

    return write


class BufferedLines:
    """Buffers lines; a thread writes them in batches, about 20 ms later.

    Standard error may be a file on the disk of the database: a write can block during an fsync, and would block
    requests.
    """

    def __init__(self, file: BinaryIO | RotatingFile) -> None:
        self.file = file
        self._lines: list[bytes] = []
        self._has_lines = threading.Event()
        threading.Thread(target=self._run, name="log", daemon=True).start()
        atexit.register(self.flush)

    def msg(self, line: bytes) -> None:
        self._lines.append(line)
        if not self._has_lines.is_set():
            self._has_lines.set()

    log = debug = info = warn = warning = error = critical = exception = msg

    def flush(self) -> None:
        self._has_lines.clear()
        lines, self._lines = self._lines, []
        if lines:
            self.file.write(b"\n".join(lines) + b"\n")
            self.file.flush()

    def _run(self) -> None:
        while True:
            self._has_lines.wait()
            time.sleep(FLUSH_DELAY_S)
            self.flush()


class RotatingFile:
    """A private file that is renamed to `<name>.1` when it is full."""

    def __init__(self, path: Path, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._handle = self._open()

    def write(self, text: bytes) -> None:
        with contextlib.suppress(OSError):  # A full disk must not stop the process that logs it.
            if os.fstat(self._handle).st_size + len(text) > self._max_bytes:
                os.replace(self._path, self._path.with_name(f"{self._path.name}.1"))
                os.close(self._handle)
                self._handle = self._open()
            os.write(self._handle, text)

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def get_logger(name: str) -> Any:
    return structlog.get_logger(source=name)


def _add_origin(_logger: Any, _method: str, event: Event) -> Event:
    event["process"] = _process
    if "trace" not in event and (current := trace.get()) is not None:
        event["trace"] = current
    return event


def _mask_tokens(_logger: Any, _method: str, event: Event) -> Event:
    for key, value in event.items():
        if isinstance(value, str) and ("_" in value or "eyJ" in value):
            event[key] = _TOKEN.sub(r"\1****", value)
    return event


def _write_to_file(_logger: Any, _method: str, event: Event) -> Event:
    if _lines is not None:
        _lines.msg(_encode(event))
    if not _shows_requests and event["level"] == "info" and _level == _LEVELS["info"]:
        raise structlog.DropEvent
    return event


def _json_line(_logger: Any, _method: str, event: Event) -> bytes:
    return _encode(event)
