"""Copies of the ordered certificate, and of the error of its latest order, in the data folder of a gateway."""

from __future__ import annotations

import contextlib
from pathlib import Path

from moorage.core.kit.clock import to_wire
from moorage.gateway import operator_certificate
from moorage.gateway.wildcard.state import Failures, Ordered
from moorage.settings import Settings


def sync(settings: Settings, ordered: Ordered | None, failures: Failures | None) -> bool:
    """Write the files if they differ; return whether the certificate did. Safe to repeat."""
    if failures is None:
        _error_file(settings).unlink(missing_ok=True)
    else:
        _write(_error_file(settings), f"{failures.error}; the next order is at {to_wire(failures.next_at)}")
    return ordered is not None and _write(operator_certificate.ordered_file(settings), ordered.bundle)


def find_error(settings: Settings) -> str | None:
    """Return the error of the latest order and the time of the next one, if it failed; for `moorage doctor`."""
    with contextlib.suppress(OSError):
        return _error_file(settings).read_text()
    return None


def _error_file(settings: Settings) -> Path:
    return settings.folder("run") / "wildcard-certificate.error"


def _write(path: Path, text: str) -> bool:
    with contextlib.suppress(OSError):
        if path.read_text() == text:
            return False
    operator_certificate.write_private(path, text.encode())
    return True
