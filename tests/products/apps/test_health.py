"""The health rule: accepted statuses, and how long a wrong answer may repeat."""

from __future__ import annotations

import pytest

from moorage.products.apps.health import (
    NOT_READY_S,
    SERVER_ERROR_S,
    WRONG_ANSWER_S,
    HealthCheck,
    Steadiness,
)
from moorage.products.apps.probing import WrongAnswer


@pytest.mark.parametrize(
    ("path", "healthy", "unhealthy"),
    [("/", (200, 302, 401, 404, 499), (101, 500, 503)), ("/healthz", (200, 399), (101, 400, 404, 500))],
)
def test_only_a_path_that_the_owner_set_is_checked_strictly(
    path: str, healthy: tuple[int, ...], unhealthy: tuple[int, ...]
) -> None:
    check = HealthCheck(path, "app.example")

    assert all(status in check.accepted for status in healthy)
    assert not any(status in check.accepted for status in unhealthy)


def test_an_app_that_refuses_the_name_of_the_probe_is_still_reachable() -> None:
    check = HealthCheck("/healthz", "app.example")

    assert 400 in check.accepted_at_probe_host
    assert 404 not in check.accepted_at_probe_host
    assert 502 not in check.accepted_at_probe_host


@pytest.mark.parametrize(("status", "after_s"), [(404, WRONG_ANSWER_S), (500, SERVER_ERROR_S), (503, NOT_READY_S)])
def test_the_same_wrong_answer_is_final_after_a_time_that_depends_on_it(status: int, after_s: float) -> None:
    steadiness, answer = Steadiness(), WrongAnswer(f"GET / answered {status}", status)

    assert not steadiness.is_final(answer, 100.0)
    assert not steadiness.is_final(answer, 100.0 + after_s - 0.1)
    assert steadiness.is_final(answer, 100.0 + after_s)


def test_another_answer_or_none_starts_the_time_again() -> None:
    steadiness, answer = Steadiness(), WrongAnswer("GET / answered 404", 404)
    steadiness.is_final(answer, 0.0)
    steadiness.is_final("no answer within 5 s", 5.0)

    assert not steadiness.is_final(answer, 11.0)
    assert not steadiness.is_final(WrongAnswer("GET / answered 403", 403), 20.9)
    assert not steadiness.is_final(answer, 21.5)


def test_silence_is_never_final() -> None:
    steadiness = Steadiness()

    assert not steadiness.is_final("no answer within 5 s", 0.0)
    assert not steadiness.is_final("no answer within 5 s", 1_000.0)
