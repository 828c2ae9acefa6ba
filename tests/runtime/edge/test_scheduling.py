"""The scheduling class of the edge follows the rate of calls."""

from __future__ import annotations

import os
import threading

import pytest

from moorage.runtime.edge.calls.scheduling import BATCH_RATE, Scheduling


def classes(*counts: int) -> list[int]:
    """Return the class of a thread after each second, in which as many calls were answered."""
    found: list[int] = []

    def run() -> None:
        scheduling, total = Scheduling(), 0
        for second, count in enumerate(counts, 1):
            total += count
            scheduling.update(total, float(second))
            found.append(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found


def test_few_calls_are_answered_in_the_normal_class() -> None:
    assert classes(0, 1, BATCH_RATE - 1) == [os.SCHED_OTHER] * 3


def test_many_calls_are_answered_in_the_batch_class_until_they_end() -> None:
    assert classes(BATCH_RATE, 2 * BATCH_RATE, 10) == [os.SCHED_BATCH, os.SCHED_BATCH, os.SCHED_OTHER]


def test_a_machine_that_refuses_the_class_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)

    assert classes(BATCH_RATE, 10) == [os.SCHED_OTHER] * 2
