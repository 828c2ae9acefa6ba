"""The benchmarks of functions run from end to end at tiny sizes, and their judges find what they should find.

What is measured at these sizes means nothing, so only promises are judged: versions, records, runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from bench.function_schedules import Seen
from bench.function_soak import Answers, Change
from bench.function_sockets import Sockets, expect_all, get
from bench.load import BadAnswer, Reply

from bench import function_load, function_schedules, function_soak, functions


class Handler(BaseHTTPRequestHandler):
    """Answers /hello; refuses everything else, and closes the connection after it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path != "/hello":
            self.send_error(404)
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_every_connection_is_kept_busy_until_enough_was_sent(port: int) -> None:
    with Sockets(port, [get("/hello")], 3) as sockets:
        done = expect_all(sockets.run(30, most=20))

    assert done.answered == len(done.latencies) == 20


def test_a_paced_load_shows_each_answer_with_its_time_span(port: int) -> None:
    seen: list[tuple[Reply, float, float]] = []

    with Sockets(port, [get("/hello")], 2) as sockets:
        sockets.run(30, most=10, rate=200, on_answer=lambda *answer: seen.append(answer))

    assert [reply.body for reply, _, _ in seen] == [b"hello"] * 10
    assert all(since < until for _, since, until in seen)


def test_a_refused_request_counts_as_failed_and_its_connection_is_made_again(port: int) -> None:
    with Sockets(port, [get("/nothing")], 1) as sockets:
        done = sockets.run(30, most=3)

        assert (done.answered, done.failed) == (0, 3)
        with pytest.raises(BadAnswer, match="3 of 3 failed"):
            expect_all(done)


def test_the_generator_of_our_own_measures_what_wrk_measures(port: int) -> None:
    done = function_load.Own().drive(port, ["/hello"], connections=2, seconds=0.1)

    assert done.rate > 0
    assert 0 < done.p50_ms <= done.p99_ms


def test_what_wrk_reports_is_read_and_a_refused_request_is_no_measurement() -> None:
    report = '{"answered": 300, "us": 2000000, "p50_us": 1500, "p99_us": 9000, "refused": %d, "broken": 0}'

    done = function_load.read_report(f"Running 2s test\n\n{report % 0}\n")

    assert (done.rate, done.p50_ms, done.p99_ms) == (150, 1.5, 9)
    with pytest.raises(BadAnswer):
        function_load.read_report(report % 1)


def test_wrk_draws_from_all_paths_where_there_are_several() -> None:
    assert "PATHS" not in function_load.lua(["/0"])
    assert 'local PATHS = { "/0", "/1" }' in function_load.lua(["/0", "/1"])


def answered(*answers: tuple[int, float, float]) -> Answers:
    found = Answers()
    for number, since, until in answers:
        found.note(Reply(200, str(number).encode()), since, until)
    return found


def test_an_answer_may_come_from_any_version_that_was_live_while_it_was_asked_for() -> None:
    changes = [Change(0, 0, 1), Change(1, 10, 11), Change(0, 20, 21)]

    fine = answered((0, 2, 3), (0, 9, 12), (1, 10.5, 10.6), (0, 10.5, 10.6), (1, 20.5, 20.6), (0, 30, 31))

    assert function_soak.wrong(changes, fine) == 0


def test_an_answer_from_a_version_that_was_no_longer_or_not_yet_live_is_wrong() -> None:
    changes = [Change(0, 0, 1), Change(1, 10, 11), Change(2, 20, 21)]

    assert function_soak.wrong(changes, answered((0, 12, 13), (1, 8, 9), (2, 12, 13), (7, 12, 13))) == 4


def test_a_schedule_that_ran_twice_or_never_is_found_out() -> None:
    once = Seen({0: [1.0], 1: [1.0]}, [1, 1], failed=0)
    twice = Seen({0: [1.0, 2.0], 1: [1.0]}, [2, 1], failed=0)
    never = Seen({0: [1.0]}, [1, 0], failed=0)
    unproved = Seen({0: [1.0]}, [1, 1], failed=0)
    cut_short = Seen({0: [1.0]}, [1, 1], failed=1)

    assert function_schedules.not_once(once, 2) == 0
    assert function_schedules.not_once(twice, 2) > 0
    assert function_schedules.not_once(never, 2) > 0
    assert function_schedules.not_once(unproved, 2) > 0
    assert function_schedules.not_once(cut_short, 2) == 0


@pytest.mark.bench
@pytest.mark.parametrize("name", functions.NAMES)
def test_a_benchmark_of_functions_runs_from_end_to_end_and_breaks_no_promise(name: str, tmp_path: Path) -> None:
    measured = functions.run(name, tmp_path, quick=True)

    promises = [figure for figure in measured if figure.bar is not None and figure.bar.limit == 0]
    assert [figure.name for figure in promises if figure.is_missed] == []
    assert any(figure.value > 0 for figure in measured)
