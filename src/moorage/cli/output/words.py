"""Times, durations, sizes and states as short words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

AGES: Final = ((86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
GOOD: Final = frozenset(
    ("succeeded", "live", "running", "active", "verified", "issued", "completed", "up", "ready", "approved", "accepted")
)
BAD: Final = frozenset(("failed", "down", "error", "triggered", "rejected", "expired"))
IDLE: Final = frozenset(("paused", "pause", "stopped", "disabled", "inactive", "closed", "none", "revoked", "declined"))


def ago(text: str | None) -> str:
    """Return the age of a time of the API: `3 min ago`, or `in 2 h` for a time to come."""
    moment = parsed(text)
    if moment is None:
        return ""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """Return a duration in its largest unit: 45 s, 3 min, 2 h, 5 d."""
    for size, unit in AGES:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "0 s"


def duration(ms: float | None) -> str:
    """Return a measured duration: 850 ms, 3.2 s, 4 min 5 s."""
    if ms is None:
        return ""
    if ms < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 60_000 else f"{int(ms // 60_000)} min {int(ms % 60_000 // 1000)} s"


def size(count: float | None) -> str:
    """Return a number of bytes: 512 B, 3.4 kB, 2 MB."""
    if count is None:
        return ""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def parsed(text: str | None) -> datetime | None:
    """Return a time of the API, or None for a text that is none."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def state_style(state: str | None) -> tuple[str, ...]:
    """Return the colour of a state: green for a good one, red for a failure, dim for an idle one, else yellow."""
    word = (state or "").lower()
    if not word or word in IDLE:
        return ("dim",)
    return ("green",) if word in GOOD else ("red",) if word in BAD else ("yellow",)
