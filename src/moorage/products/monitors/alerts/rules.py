"""Whether an alert fires or resolves: judged sample by sample, from nothing but what is handed in.

A condition has to hold for as long as the alert says, at every sample in a row, before it fires; two good samples in a
row resolve it. A sample without a value says nothing, so it changes nothing. An alert that keeps firing is held until
its target has been steady for a while, so that nobody is told of every turn.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from moorage.core.kit.clock import MINUTE_MS
from moorage.products.monitors.probing.beats import Outcome
from moorage.products.monitors.probing.certificates import days_left
from moorage.products.monitors.states import AlertStatus

GOOD_SAMPLES = 2  # in a row resolve an alert
FLAP_FIRES, FLAP_WITHIN_MS = 3, 30 * MINUTE_MS  # as many fires within that time are flapping
STEADY_MS = 10 * MINUTE_MS  # of nothing but good samples end it

_CONDITIONS: dict[str, Callable[[float, float], bool]] = {
    "gt": operator.gt,
    "lt": operator.lt,
    "eq": operator.eq,
    "neq": operator.ne,
}


class Event(StrEnum):
    """What a sample brought about; people are told of it under this name."""

    FIRED = "triggered"
    FLAPPING = "flapping"  # fired, too often of late
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
    value: float | None  # None: there is no data


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an alert is on the way from one status to the next."""

    status: AlertStatus
    pending_since: int | None = None
    good_samples: int = 0
    good_since: int | None = None
    fires: tuple[int, ...] = ()  # the latest ones, as many as flapping takes
    is_flapping: bool = False


def judge(rule: Rule, progress: Progress, sample: Sample) -> tuple[Progress, Event | None]:
    """Return how far an alert is after a sample, and what that sample brought about.

    Where nothing changes it is the same object that was handed in. Samples are handed in by the order of their slots;
    one from before the last, as after a clock was set back, begins to count anew.
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
    # More than enough need not be counted: while it is held only the time matters, and a row is not written each time.
    counted = replace(progress, good_samples=min(samples, GOOD_SAMPLES), good_since=since)
    return (progress if counted == progress else counted), None


def _begin(since: int | None, at: int) -> int:
    """Return when a row of samples began, of which this is the latest."""
    return at if since is None or since > at else since


def value_of(metric: str, outcome: Outcome, *, error_rate: float | None, now: int) -> float | None:
    """Return what a check says about a metric; None where it says nothing."""
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
