"""Evaluates alerts sample by sample. Pure functions.

An alert fires when its condition holds for its duration, at every sample in a row; two good samples in a row resolve
it. A sample without a value changes nothing. An alert that keeps firing counts as flapping and resolves only after its
target was steady for a while, which avoids a notice per change.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from moorage.core.kit.clock import MINUTE_MS
from moorage.core.kit.records import dataclass
from moorage.products.monitors.probing.beats import Outcome
from moorage.products.monitors.probing.certificates import days_left
from moorage.products.monitors.states import AlertStatus

GOOD_SAMPLES = 2  # number in a row that resolves an alert
FLAP_FIRES, FLAP_WITHIN_MS = 3, 30 * MINUTE_MS  # this many fires within this time count as flapping
STEADY_MS = 10 * MINUTE_MS  # time of only good samples that ends flapping

_CONDITIONS: dict[str, Callable[[float, float], bool]] = {
    "gt": operator.gt,
    "lt": operator.lt,
    "eq": operator.eq,
    "neq": operator.ne,
}


class Event(StrEnum):
    """Effect of a sample; the value is the kind of the notice."""

    FIRED = "triggered"
    FLAPPING = "flapping"  # fired, and too often recently
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Rule:
    condition: str
    threshold: float
    duration_min: int

    def matches(self, value: float) -> bool:
        return _CONDITIONS[self.condition](value, self.threshold)


@dataclass(frozen=True, slots=True)
class Sample:
    at: int  # the slot
    value: float | None  # None without data


@dataclass(frozen=True, slots=True)
class Progress:
    """State of an alert between samples."""

    status: AlertStatus
    pending_since: int | None = None
    good_samples: int = 0
    good_since: int | None = None
    fires: tuple[int, ...] = ()  # times of the latest FLAP_FIRES fires
    is_flapping: bool = False


def judge(rule: Rule, progress: Progress, sample: Sample) -> tuple[Progress, Event | None]:
    """Return the progress of an alert after a sample, and the event it caused.

    Returns the same progress object if nothing changes. Samples come in the order of their slots; an earlier one, as
    after a clock was set back, restarts the counting.
    """
    if sample.value is None or progress.status == AlertStatus.INACTIVE:
        return progress, None
    matches = rule.matches(sample.value)
    if progress.status == AlertStatus.TRIGGERED:
        return _while_triggered(progress, sample.at, matches=matches)
    if matches:
        return _while_matching(rule, progress, sample.at)
    return (progress if progress.pending_since is None else replace(progress, pending_since=None)), None


def _while_matching(rule: Rule, progress: Progress, at: int) -> tuple[Progress, Event | None]:
    since = _begin(progress.pending_since, at)
    # One sample alone never fires, however short the duration is.
    if since == at or at - since < rule.duration_min * MINUTE_MS:
        return (progress if since == progress.pending_since else replace(progress, pending_since=since)), None
    recent = [fire for fire in progress.fires if 0 <= at - fire <= FLAP_WITHIN_MS]
    fires = (*recent, at)[-FLAP_FIRES:]
    is_flapping = len(fires) == FLAP_FIRES
    fired = Progress(AlertStatus.TRIGGERED, fires=fires, is_flapping=is_flapping)
    return fired, Event.FLAPPING if is_flapping else Event.FIRED


def _while_triggered(progress: Progress, at: int, *, matches: bool) -> tuple[Progress, Event | None]:
    if matches:
        return (progress if not progress.good_samples else replace(progress, good_samples=0, good_since=None)), None
    since = _begin(progress.good_since, at)
    samples = progress.good_samples + 1
    steady = STEADY_MS if progress.is_flapping else 0
    if samples >= GOOD_SAMPLES and at - since >= steady:
        return Progress(AlertStatus.ACTIVE, fires=progress.fires), Event.RESOLVED
    # Stops counting at GOOD_SAMPLES: while flapping only the time matters, and an unchanged row is not written.
    counted = replace(progress, good_samples=min(samples, GOOD_SAMPLES), good_since=since)
    return (progress if counted == progress else counted), None


def _begin(since: int | None, at: int) -> int:
    """Return the start of a sequence of samples that includes the one at `at`."""
    return at if since is None or since > at else since


def value_of(metric: str, outcome: Outcome, *, error_rate: float | None, now: int) -> float | None:
    """Return the value of a metric for a check; None without data."""
    match metric:
        case "status":
            return 1.0 if outcome.is_up else 0.0
        case "response_time":
            return outcome.response_ms
        case "status_code":
            return outcome.code
        case "ssl_expiry":
            return None if outcome.certificate is None else days_left(outcome.certificate.valid_to, now)
        case "error_rate":
            return error_rate
    raise ValueError(f"there is no metric {metric!r}")
