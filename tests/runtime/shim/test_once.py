"""One-off runs of a release: supervision, timeouts and result files."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.engines.engine_support import Engine, Replica, lives
from tests.runtime.workers.invoker_support import until

from moorage.runtime.logs.reader import LogFolder

SHELL = ["/bin/sh", "-c"]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def begin(engine: Engine, argv: list[str], files: dict[str, str] | None = None, **changed: Any) -> Replica:
    spec = engine.make(files or {}, argv, kind="run", **changed)
    return engine.begin({**spec, "log": str(engine.home / "logs" / spec["key"])}, listens=False)


def path_of(run: Replica) -> Path:
    return run.engine.home / "run" / "shims-results" / f"{run.key}.json"


def result_of(run: Replica) -> Any:
    path = path_of(run)
    until(path.exists, f"the result of {run.key}")
    return json.loads(path.read_text())


def refusal(engine: Engine, argv: list[str], **changed: Any) -> str:
    spec = engine.make({}, argv, kind="run", **changed)
    return str(engine.ask("start", spec=spec)["error"])


def printed(run: Replica) -> list[str]:
    result_of(run)
    return run.log()


@pytest.mark.parametrize("code", [0, 3])
def test_a_run_ends_with_its_exit_code_and_leaves_its_output(engine: Engine, code: int) -> None:
    run = begin(engine, [*SHELL, f"echo out; echo err >&2; exit {code}"])

    result = result_of(run)

    assert result["exitCode"] == code
    assert result["reason"] == (None if code == 0 else "it ended with exit code 3")
    assert result["startedMs"] <= result["endedMs"]
    log = run.log()
    assert {"o out", "e err"} <= set(log)
    assert (log[0], log[-1]) == ("s starting", f"s ended: it ended with exit code {code}")
    assert run.until(phase="stopped")["exit_code"] == code
    until(lambda: not run.folder.exists())


def test_a_run_is_not_started_again_and_what_watched_over_it_goes(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "sleep 0.2; exit 1"])

    result_of(run)

    until(lambda: not lives(run.shim))
    assert run.log().count("s starting") == 1


def test_a_run_has_no_port_and_is_told_of_none(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "echo port=$PORT host=$HOST home=$HOME; sleep 0.5"])

    assert run.port == 0
    assert "o port= host= home=/tmp" in printed(run)


def test_a_run_that_is_over_at_once_is_still_a_start_that_worked(engine: Engine) -> None:
    runs = [begin(engine, ["/bin/true"]) for _ in range(5)]

    assert [result_of(run)["exitCode"] for run in runs] == [0] * 5


def test_a_run_that_takes_too_long_is_asked_to_end_and_says_why(engine: Engine) -> None:
    code = "trap 'echo leaving; exit 0' TERM; while :; do sleep 0.05; done"
    run = begin(engine, [*SHELL, code], timeout_s=1)

    result = result_of(run)

    assert (result["exitCode"], result["reason"]) == (0, "it took longer than 1 second")
    assert run.log()[-2:] == ["o leaving", "s ended: it took longer than 1 second"]


def test_a_run_that_is_stopped_says_so(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "trap '' TERM; echo up; while :; do sleep 0.05; done"])
    until(lambda: "o up" in run.log())

    run.stop(grace_s=0.2)

    assert run.log()[-1] == "s ended: it was stopped"
    assert not lives(run.shim)


def test_a_run_that_takes_too_much_memory_says_so(engine: Engine) -> None:
    code = "hold = []\nwhile True:\n    hold.append(b'x' * (1 << 20))"
    run = begin(engine, [engine.python, "main.py"], {"main.py": code}, memory_mb=64)

    result = result_of(run)

    assert result["exitCode"] != 0
    # Without cgroups, a fast process meets its own resource limit first.
    assert result["reason"] in ("it ran out of memory (64 MB)", "it ended with exit code 1")
    assert engine.mode == "user" or result["reason"] == "it ran out of memory (64 MB)"


def test_a_run_goes_on_when_the_control_plane_is_killed_and_is_found_by_its_token(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "while [ ! -e /tmp/x ]; do sleep 0.05; done"])
    engine.end(kill=True)

    engine.ask("adopt", tokens={run.key: run.spec["token"]})

    assert run.state()["phase"] == "running"
    run.stop(grace_s=0.0)
    assert run.log()[-1] == "s ended: it was stopped"


def test_what_ends_while_the_control_plane_is_away_is_read_later(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "sleep 0.3; exit 5"])
    engine.end(kill=True)

    assert result_of(run)["exitCode"] == 5

    until(lambda: not run.folder.exists())
    engine.ask("adopt", tokens={run.key: run.spec["token"]})
    assert (run.state()["phase"], run.state()["exit_code"]) == ("stopped", 5)
    run.stop()
    assert (run.state(), path_of(run).exists()) == (None, False)


def test_of_a_long_log_the_newest_is_kept_and_the_cut_is_marked(engine: Engine) -> None:
    code = "for n in range(60_000):\n    print(f'line {n:06d} ' + 'x' * 50)\n"
    run = begin(engine, [engine.python, "main.py"], {"main.py": code}, log_bytes=2_000_000)
    result_of(run)

    lines = LogFolder(Path(run.spec["log"])).read(limit=10**6)

    size = sum(path.stat().st_size for path in Path(run.spec["log"]).glob("*.log"))
    assert 1_500_000 < size <= 2_000_500
    assert lines[0].stream == "system"
    assert lines[0].message.startswith("the log is cut here: ")
    assert [line.message[:11] for line in lines[-2:]] == ["line 059999", "ended: it e"]
    numbers = [int(line.message[5:11]) for line in lines if line.stream == "stdout"]
    assert numbers == list(range(numbers[0], 60_000))


def test_secrets_are_masked_in_the_log_of_a_run(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "echo the key is $KEY"], env={"PATH": PATH, "KEY": "hush-hush"}, hidden=["hush-hush"])

    assert "o the key is ****" in printed(run)


def test_a_run_outside_of_a_sandbox_ends_the_same_way(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "echo here; exit 4"], is_boxed=False)

    assert result_of(run)["exitCode"] == 4
    assert "o here" in run.log()


def test_a_killed_shim_takes_its_run_along_and_leaves_no_result(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "sleep 600"])
    app = run.until(phase="running")["app_pid"]

    os.kill(run.shim, signal.SIGKILL)

    run.until(phase="stopped", exit_code=None, reason=None)
    until(lambda: not lives(app))
    assert not path_of(run).exists()
    result_of(begin(engine, ["/bin/true"]))  # The next shim removes its leftovers.
