"""Results of one-off runs: kept by key until the run is stopped."""

from __future__ import annotations

import json
from pathlib import Path

from moorage.runtime.engines.ports import ReplicaState
from moorage.runtime.engines.results import RunResults


def write(path: Path, **changed: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"exitCode": 3, "reason": "why", "startedMs": 5, "endedMs": 9, **changed}))


def test_a_result_is_the_final_state_of_a_run(tmp_path: Path) -> None:
    results = RunResults(tmp_path / "results", tmp_path / "logs")
    write(results.path("c7"))

    state = results.find("c7")

    assert state is not None
    assert (state.phase, state.exit_code, state.reason, state.ended_ms) == ("stopped", 3, "why", 9)


def test_a_run_that_an_earlier_version_started_has_its_result_beside_its_log(tmp_path: Path) -> None:
    results = RunResults(tmp_path / "results", tmp_path / "logs")
    write(tmp_path / "logs" / "cronjobs" / "4" / "7" / "result.json", exitCode=0, reason=None)

    state = results.find("c7")

    assert state is not None
    assert (state.exit_code, state.reason) == (0, None)
    assert results.find("c8") is None
    assert results.find("r7") is None  # a replica of an app


def test_without_a_readable_result_the_last_state_is_kept_as_stopped(tmp_path: Path) -> None:
    results = RunResults(tmp_path, tmp_path / "logs")
    (tmp_path / "c7.json").write_text('{"exitCode": ')

    state = results.find("c7", ReplicaState("c7", 1, 2, 0, "running", app_pid=5))

    assert state is not None
    assert (state.phase, state.app_pid, state.exit_code, state.reason) == ("stopped", None, None, None)


def test_results_of_unknown_runs_are_removed(tmp_path: Path) -> None:
    results = RunResults(tmp_path, tmp_path / "logs")
    write(results.path("c7"))
    write(results.path("c8"))

    results.remove_all_but({"c8"})
    results.remove("c9")

    assert [path.name for path in tmp_path.iterdir()] == ["c8.json"]
