"""Scaling of instances depends on the calls, not on a busy machine."""

from __future__ import annotations

import pytest
from tests.runtime.edge.pool_support import make_function, opened, until

from moorage.runtime.edge.calls import function as rules
from moorage.runtime.edge.calls.function import MIN_SAMPLES, SAMPLE_EVERY, SHORT_CALL_US

pytestmark = pytest.mark.anyio


def test_slow_calls_among_many_short_ones_do_not_count_for_more_than_they_are() -> None:
    function = make_function()

    for number in range(1, 5000):
        function.observe(20_000 if number % 50 == 0 else 100, number)

    assert function.slow_share < rules.MAX_SLOW_SHARE
    assert function.mean_us < SHORT_CALL_US
    assert function.depth > 1


def test_a_function_whose_calls_become_slow_is_noticed_soon() -> None:
    function = make_function()
    for number in range(1, 1000):
        function.observe(100, number)

    for number in range(1000, 1000 + 4 * SAMPLE_EVERY):
        function.observe(50_000, number)

    assert function.mean_us >= SHORT_CALL_US
    assert function.depth == 1


async def test_calls_wait_for_a_new_function_until_one_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "STUCK_AFTER_S", 3600)
    async with opened() as lab:
        function = lab.function()
        await lab.warm(function)
        for _ in range(3):
            lab.call(function)
        before = len(lab.invoker.takes)

        monkeypatch.setattr(rules, "STUCK_AFTER_S", 0)
        await until(lambda: len(lab.invoker.takes) > before)

    assert before == 1
    assert len(lab.invoker.takes) == 3  # One for each waiting call: their run time is still unknown.


async def test_a_call_that_hangs_does_not_hold_up_a_function_of_short_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "SHORT_STUCK_AFTER_S", 3600)
    monkeypatch.setattr(rules, "SCALE_UP_WAIT_S", 0)  # Any running call counts as blocking.
    async with opened() as lab:
        function = lab.function()
        await lab.warm(function, MIN_SAMPLES)
        for _ in range(3):
            lab.call(function)
        before = len(lab.invoker.takes)

        monkeypatch.setattr(rules, "SHORT_STUCK_AFTER_S", 0)
        await until(lambda: len(lab.invoker.takes) > before)

    assert before == 1
    assert len(lab.invoker.takes) == 2
