"""The benchmarks run from end to end at tiny sizes. What they measure there means nothing, so no figure is judged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bench.evidence import examine
from bench.figures import Figure, at_most, ratio_at_least

from bench import create, faults, figures, idle, jobs, load, read, servers, stores


def by_name(measured: list[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in measured}


@pytest.mark.bench
def test_reads_are_measured_on_every_route_and_against_everything_that_is_installed(tmp_path: Path) -> None:
    measured = read.run(tmp_path, read.TINY)

    assert len(measured) == 3 * len(read.PATHS) * len(read.TINY.clients)
    for figure in measured:
        assert figure.value > 0
        assert (figure.ratio is not None) == (servers.has_rival() or figure.base_name == "bare ASGI")


@pytest.mark.bench
def test_creates_are_measured_in_the_store_and_over_http(tmp_path: Path) -> None:
    measured = by_name(create.run(tmp_path, create.TINY))

    compared = [figure for figure in measured.values() if figure.base is not None]
    assert len(compared) == 3
    assert all(figure.value > 0 and figure.base for figure in compared)
    assert measured["create: plain fsync, p50"].value > 0


def test_every_job_starts_after_it_was_asked_for(tmp_path: Path) -> None:
    measured = by_name(jobs.run(tmp_path, jobs.TINY))

    half, most = measured["jobs: enqueue to start, p50"].value, measured["jobs: enqueue to start, p95"].value
    assert 0 < half <= most


@pytest.mark.bench
def test_an_idle_platform_has_a_size_and_starts_again_on_its_folder(tmp_path: Path) -> None:
    measured = by_name(idle.run(tmp_path, idle.TINY))

    rss, pss = (
        measured["idle: memory of all processes, RSS"].value,
        measured["idle: memory of all processes, PSS"].value,
    )
    assert 0 < pss <= rss
    assert measured["idle: later start to ready"].value > 0


@pytest.mark.bench
def test_nothing_acknowledged_is_lost_to_kill_9(tmp_path: Path) -> None:
    measured = by_name(faults.run(tmp_path, faults.TINY))

    assert measured["faults: kill -9"].value >= 1
    assert measured["faults: creates acknowledged"].value >= 1
    assert measured["faults: promises broken"].value == 0


def test_a_store_that_lost_a_create_or_left_a_job_is_found_out(tmp_path: Path) -> None:
    db, _ = asyncio.run(stores.open_seated(tmp_path, 1))
    db.close()

    found = examine(db.path, {"Harbor that never was": "7"}, set())

    assert found.violations == [
        "Harbor that never was was acknowledged as 7 but is missing",
        "user0's organization was welcomed 0 times",
        "1 jobs are queued: None",
    ]


def test_a_bar_is_judged_by_the_ratio_or_by_the_figure_itself() -> None:
    met = Figure("a", 10, "/s", 2, "other", ratio_at_least(5))
    missed = Figure("b", 11, "ms", bar=at_most(10))
    unmeasured = Figure("c", 10, "/s", None, "other", ratio_at_least(5))

    assert [figure.verdict for figure in (met, missed, unmeasured)] == ["met", "MISSED", "NOT MEASURED"]
    assert [figure.is_missed for figure in (met, missed, unmeasured)] == [False, True, True]
    assert figures.table([met, missed]).splitlines()[2].split()[:2] == ["a", "10"]


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(1, 101)]

    assert figures.percentile(values, 0.5) == 50
    assert figures.percentile(values, 0.95) == 95
    assert figures.percentile([3.0], 0.95) == 3


@pytest.mark.parametrize("cut", [5, 40, 46])
def test_an_answer_counts_only_once_it_is_whole(cut: int) -> None:
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabcdefghi"

    assert load.split_reply(whole[:cut]) is None
    assert load.split_reply(whole + b"HTTP") == (load.Reply(200, b"abcdefghi"), len(whole))
