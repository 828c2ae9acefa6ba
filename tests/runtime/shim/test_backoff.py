"""Restart backoff of an app."""

from __future__ import annotations

from moorage.runtime.shim.backoff import Backoff


def test_the_wait_doubles_up_to_a_minute() -> None:
    backoff = Backoff(now=lambda: 0.0)

    assert [backoff.next() for _ in range(10)] == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_an_app_that_ran_well_for_a_minute_is_started_at_once_again() -> None:
    now = 0.0
    backoff = Backoff(now=lambda: now)
    first = [backoff.next() for _ in range(3)]

    backoff.began()
    now = 60.0

    assert first == [0, 1, 2]
    assert [backoff.next() for _ in range(2)] == [0, 1]
