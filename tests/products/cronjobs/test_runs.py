"""Runs of cronjobs on this machine: real builds, real processes."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from tests.conftest import RunJobs
from tests.products.cronjobs.run_support import Machine, ended, has_status, run
from tests.products.cronjobs.support import Repo, Team, make_repository, until

from moorage.app import App
from moorage.core import jobs
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, ManualClock, to_wire
from moorage.core.telemetry import Telemetry
from moorage.core.vault import service as vault
from moorage.core.worker.pool import Worker
from moorage.products.cronjobs import retention, service, tables
from moorage.products.cronjobs.running import RESTARTED, START_AGAIN_MS
from moorage.runtime.engines.local import LocalReplicas
from moorage.runtime.engines.ports import ReplicaState

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("db", ["sqlite"], indirect=True)]


@pytest.fixture
async def built(team: Team, tmp_path: Path, run_jobs: RunJobs) -> Repo:
    """A cronjob with a minimal build: Node.js without dependencies installs nothing. The test sets its command."""
    repo = await make_repository(team.db, team.org_id, tmp_path / "checkout")
    repo.commit(data_txt="of the repository", job_sh="echo the job")
    made = (await team.create(language="nodejs", startCmd="sh job.sh")).data
    await run_jobs()
    log = (await team.get(f"/nightly/builds/{made['deploymentUuid']}/logs")).data
    assert log["status"] == "succeeded", log["logs"]
    return repo


async def begun(team: Team, uuid: str, word: str) -> None:
    """Wait until a run has log lines."""

    async def look() -> bool:
        return any(word in line for line in await team.lines(uuid))

    await until(look)


async def watched(machine: Machine) -> ReplicaState:
    """Wait until the engine knows the running run; it may print before that."""
    states = await until(_async(lambda: list(machine.engine.states().values())))
    assert len(states) == 1
    return cast("ReplicaState", states[0])


async def test_a_run_has_what_was_built_and_knows_why_it_runs(
    team: Team, machine: Machine, built: Repo, clock: ManualClock
) -> None:
    await team.patch(env=[{"name": "PLACE", "value": "here"}])

    done = await run(team, 'cat data.txt; echo; echo "$PLACE $MOORAGE_EXECUTION_ID $MOORAGE_SCHEDULED_AT [$PORT]"')

    uuid = done["executionUuid"]
    assert (done["status"], done["exitCode"], done["errorMessage"]) == ("succeeded", 0, None)
    assert (done["startedAt"], done["completedAt"]) == (to_wire(clock.now()), to_wire(clock.now()))
    lines = await team.lines(uuid)
    assert lines[0] == "s starting"
    assert {"o of the repository", f"o here {uuid} {to_wire(clock.now())} []"} <= set(lines)
    logs = (await team.get(f"/executions/{uuid}/logs")).data["logs"]
    assert logs.endswith("ended: it ended with exit code 0\n")


async def test_without_a_command_it_is_started_with_its_start_command(
    team: Team, machine: Machine, built: Repo
) -> None:
    done = await run(team)

    assert "o the job" in await team.lines(done["executionUuid"])


@pytest.mark.deep
async def test_a_tick_tells_its_own_moment(team: Team, machine: Machine, built: Repo, clock: ManualClock) -> None:
    await team.patch(command="echo $MOORAGE_SCHEDULED_AT")
    clock.now_ms = clock.now_ms // 300_000 * 300_000 + 300_000 + 17_000

    await team.scheduler().turn()
    machine.runner.wake()

    uuid = (await team.executions())[0]["executionUuid"]
    done = await ended(team, uuid)
    assert done["scheduledFor"] == to_wire(clock.now_ms - 17_000)
    assert f"o {done['scheduledFor']}" in await team.lines(uuid)


async def test_an_exit_code_and_both_streams_are_kept(team: Team, machine: Machine, built: Repo) -> None:
    done = await run(team, "echo out; echo err >&2; exit 7")

    assert (done["status"], done["exitCode"]) == ("failed", 7)
    assert done["errorMessage"] == "it ended with exit code 7"
    assert {"o out", "e err"} <= set(await team.lines(done["executionUuid"]))


async def test_secrets_reach_a_run_and_not_its_log(team: Team, machine: Machine, built: Repo) -> None:
    await team.patch(secrets=[{"name": "KEY", "value": "hush-hush-hush"}])

    done = await run(team, '[ "$KEY" = hush-hush-hush ] && echo "the key is $KEY"')

    assert done["exitCode"] == 0
    assert "o the key is ****" in await team.lines(done["executionUuid"])


@pytest.mark.deep
async def test_a_run_sees_no_more_of_the_machine_than_it_needs(team: Team, machine: Machine, built: Repo) -> None:
    paths = "/x /work/x /etc/x /tmp/x /usr/x /dev/x"
    tries = f"for p in {paths}; do ls $p 2>/dev/null; (echo > $p) 2>/dev/null && echo wrote $p; done"
    done = [await run(team, f"{tries}; id -u; ls /; env") for _ in range(2)]

    for each in done:
        # The first line is the command. Nothing that the first run wrote exists in the second one.
        lines = [line[2:] for line in await team.lines(each["executionUuid"])][1:]
        uid = str(700_000_000 + (await team.row()).id) if os.getuid() == 0 else "0"
        assert lines[:5] == ["wrote /x", "wrote /work/x", "wrote /etc/x", "wrote /tmp/x", uid]
        assert not {"home", "var", "sys", "data"} & set(lines)
        assert not any(line.startswith(("MOORAGE_MASTER", "MOORAGE_DATA", "SSH")) for line in lines)


async def test_a_run_that_takes_too_much_memory_is_ended_and_told_so(team: Team, machine: Machine, built: Repo) -> None:
    done = await run(team, "tail /dev/zero")

    assert done["status"] == "failed"
    # Without cgroups the limit of a single process applies first.
    assert done["errorMessage"] in ("it ran out of memory (512 MB)", "it ended with exit code 1")


@pytest.mark.settings(cronjob_minutes=1)
async def test_a_run_may_take_as_long_as_the_operator_says(team: Team, built: Repo, app: App) -> None:
    await team.patch(command="sleep 600")
    await team.post("/nightly/pause")
    await team.trigger()

    prepared = await app.products.cronjobs.runner._launcher.prepare((await team.rows())[-1])

    assert prepared.spec.timeout_s == 60


async def test_runs_wait_for_their_turn_oldest_first(team: Team, app: App, built: Repo) -> None:
    await team.patch(command="sleep 0.2")
    uuids = [await team.trigger() for _ in range(4)]

    one = await Machine.start(app, most=1)
    done = [await ended(team, uuid) for uuid in uuids]
    await one.end()

    rows = {row.uuid: row for row in await team.rows()}
    assert [each["status"] for each in done] == ["succeeded"] * 4
    assert [rows[uuid].uuid for uuid in sorted(rows, key=lambda uuid: rows[uuid].id)] == uuids
    starts = [_moments(app, rows[uuid]) for uuid in uuids]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(starts))


def _moments(app: App, row: tables.Execution) -> tuple[int, int]:
    """Return the start and end of a run by the machine's clock."""
    folder = app.products.cronjobs.db.env.settings.folder("logs") / "cronjobs" / str(row.cronjob_id) / str(row.id)
    lines = [line for path in sorted(folder.glob("*.log")) for line in path.read_text().splitlines()]
    return int(lines[0].split()[0]), int(lines[-1].split()[0])


async def test_a_run_survives_the_platform_and_is_finished_by_the_next_one(
    team: Team, machine: Machine, built: Repo, app: App
) -> None:
    await team.patch(command="trap 'exit 6' USR1; echo up; while :; do sleep 0.05; done")
    uuid = await team.trigger()
    await begun(team, uuid, "up")
    await watched(machine)

    await machine.end()
    following = await Machine.start(app)

    status = (await team.execution(uuid))["status"]
    [state] = following.engine.states().values()
    assert state.app_pid is not None
    os.kill(state.app_pid, signal.SIGUSR1)
    done = await ended(team, uuid)
    await following.end()
    assert status == "running"
    assert (done["exitCode"], done["errorMessage"]) == (6, "it ended with exit code 6")
    assert (await team.read())["runStats"]["totalRuns"] == 1


@pytest.mark.deep
async def test_a_run_that_ended_while_the_platform_was_away_is_counted_by_the_next_one(
    team: Team, machine: Machine, built: Repo, app: App
) -> None:
    await team.patch(command="echo up; sleep 2; exit 9")
    uuid = await team.trigger()
    await begun(team, uuid, "up")
    await watched(machine)

    await machine.end()
    await begun(team, uuid, "ended:")
    row = (await team.rows())[-1]
    await until(
        _async(lambda: not (app.products.cronjobs.db.env.settings.folder("run") / "cronjobs" / row.key).exists())
    )
    following = await Machine.start(app)
    done = await ended(team, uuid)
    await following.end()

    assert (row.status, done["exitCode"]) == ("running", 9)


async def test_a_run_that_did_not_survive_says_that_the_platform_restarted(
    team: Team, machine: Machine, built: Repo, app: App
) -> None:
    await team.patch(command="echo up; sleep 600")
    uuid = await team.trigger()
    await begun(team, uuid, "up")
    state = await watched(machine)

    await machine.end()
    os.kill(state.pid, signal.SIGKILL)
    await until(_async(lambda: not Path(f"/proc/{state.pid}/fd").exists() or not os.listdir(f"/proc/{state.pid}/fd")))
    following = await Machine.start(app)
    done = await ended(team, uuid)
    await following.end()

    assert (done["status"], done["exitCode"], done["errorMessage"]) == ("failed", None, RESTARTED)


class KnowsAllStarts(LocalReplicas):
    """An engine that keeps a trace of each start, as the API server of a cluster does."""

    async def adopt(self, tokens: Mapping[str, str]) -> list[str]:
        await super().adopt(tokens)
        return [key for key in tokens if key not in self.states()]


@pytest.mark.parametrize(("away_ms", "status"), [(0, "succeeded"), (START_AGAIN_MS, "failed")])
async def test_a_run_that_never_reached_the_engine_starts_later_unless_it_is_too_old(
    team: Team, machine: Machine, built: Repo, app: App, clock: ManualClock, away_ms: int, status: str
) -> None:
    await machine.end()
    await team.patch(command="echo up")
    uuid = await team.trigger()
    row = (await team.rows())[-1]
    # The control process is killed between the commit of the row and the start of the process.
    await team.db.write(lambda tx: service.begin(tx, team.org_id, row, tx.now))
    clock.advance(away_ms)
    engine = KnowsAllStarts(app.products.cronjobs.db.env.settings.folder("run"), "cronjobs")
    following = await Machine.start(app, engine=engine)

    done = await ended(team, uuid)

    await following.end()
    assert (done["status"], (await team.read())["runStats"]["totalRuns"]) == (status, 1)
    assert ("o up" in await team.lines(uuid)) == (status == "succeeded")


async def test_what_watches_over_a_run_may_be_killed(team: Team, machine: Machine, built: Repo) -> None:
    await team.patch(command="echo up; sleep 600")
    uuid = await team.trigger()
    await begun(team, uuid, "up")
    state = await watched(machine)

    os.kill(state.pid, signal.SIGKILL)

    done = await ended(team, uuid)
    assert done["errorMessage"] == "the shim of this run ended without a result"
    assert (await run(team, "true"))["status"] == "succeeded"


async def test_deleting_a_cronjob_stops_its_run_and_leaves_nothing(
    team: Team, machine: Machine, built: Repo, db: Database, app: App
) -> None:
    await team.patch(command="echo up; sleep 600", secrets=[{"name": "KEY", "value": "hush-hush-hush"}])
    uuid = await team.trigger()
    await begun(team, uuid, "up")
    state = await watched(machine)
    found = await team.row()

    await team.delete()
    await until(has_status(team, 404))

    settings = db.env.settings
    assert machine.engine.states() == {}
    assert not (settings.folder("logs") / "cronjobs" / str(found.id)).exists()
    assert await db.read(lambda tx: vault.names(tx, team.org_id, found.resource)) == []
    assert await db.read(lambda tx: tx.all(tables.BUILDS_OF, org_id=team.org_id, cronjob_id=found.id)) == []
    assert [path for path in settings.folder("cronjob-releases").iterdir() if not path.name.startswith(".")] == []
    assert (
        not Path(f"/proc/{state.app_pid}/cmdline").exists() or not Path(f"/proc/{state.app_pid}/cmdline").read_bytes()
    )
    assert (await team.create()).status == 200


def _async(look: Any) -> Any:
    async def asked() -> Any:
        return look()

    return asked


async def test_a_run_is_followed_while_it_goes_on_and_again_from_where_one_was(
    team: Team, machine: Machine, built: Repo
) -> None:
    await team.patch(command="for i in 1 2 3; do echo line $i; sleep 0.3; done; exit 2")
    uuid = await team.trigger()

    events = _events((await team.get(f"/executions/{uuid}/logs/stream")).body)

    assert [data["message"] for name, _, data in events if name == "log" and data["stream"] == "stdout"] == [
        "line 1", "line 2", "line 3",
    ]  # fmt: skip
    assert [data["status"] for name, _, data in events if name == "status"][-1] == "failed"
    assert events[-1][0] == "done"
    assert events[-1][2] == {"status": "failed"}
    second = next(place for name, place, data in events if name == "log" and data["message"] == "line 2")
    again = await team.api.get(
        f"/v1/cronjobs/executions/{uuid}/logs/stream",
        token=next(iter(team.tokens.values())),
        headers={"Last-Event-ID": second},
    )
    assert [data["message"] for name, _, data in _events(again.body) if name == "log"] == [
        "line 3", "ended: it ended with exit code 2",
    ]  # fmt: skip


def _events(body: bytes) -> list[tuple[str, str, Any]]:
    found = []
    for block in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "event" in fields:
            found.append((fields["event"], fields.get("id", ""), json.loads(fields["data"])))
    return found


async def test_old_runs_are_forgotten_with_their_logs(
    team: Team,
    machine: Machine,
    built: Repo,
    db: Database,
    clock: ManualClock,
    app: App,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(3):
        await run(team, "true")
    rows = await team.rows()
    folder = db.env.settings.folder("logs") / "cronjobs" / str(rows[0].cronjob_id)

    monkeypatch.setattr(retention, "KEPT_RUNS", 2)
    await _trim(app, db)
    by_number = sorted(int(path.name) for path in folder.iterdir())
    monkeypatch.undo()
    clock.advance(31 * DAY_MS)
    await _trim(app, db)

    assert by_number == [row.id for row in rows[1:]]
    assert list(folder.iterdir()) == []
    assert await team.rows() == []
    assert (await team.read())["runStats"]["totalRuns"] == 3


async def _trim(app: App, db: Database) -> None:
    await db.write(lambda tx: jobs.add(tx, retention.TrimCronjobs(), lane=jobs.Lane.CHORES))
    await Worker(db, app.handlers, Telemetry(quiet=True), slots=2).run_due(turns=5)
