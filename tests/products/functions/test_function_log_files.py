"""Log files of functions: quotas, and consistency with the rows."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from pathlib import Path

import pytest
from sqlalchemy import delete, update
from tests.conftest import RunJobs
from tests.products.functions.spool_writer import (
    SMALL_FILE,
    activation,
    invocations,
    log,
    make_function,
    make_logs,
    make_recorder,
    record,
    rows,
    texts,
    write,
    writing,
)
from tests.products.functions.support import Team, make_team

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.app import App
from moorage.core import jobs
from moorage.core.db.query import Command, arg
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.products.functions.logs import log_files, loglines
from moorage.products.functions.logs.loglines import Texts
from moorage.products.functions.records import storing
from moorage.products.functions.records import tables as records
from moorage.products.functions.records.recorder import Recorder
from moorage.products.functions.tables import function
from moorage.runtime.edge.spool import LATE, MB, PRINTED_AT_ONCE, SCHEDULE, Record, Room, SpoolWriter, log_entries
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

DELETED = "[moorage] The log of this call was deleted"
_SET_LOGS = Command(update(records.invocation).values(logs=arg("new_logs")))
_DELETE_FUNCTION = Command(delete(function).where(function.c.id == arg("id")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def noise(number: int, megabytes: float) -> str:
    """Return text that compresses to about half its size."""
    return random.Random(number).randbytes(int(megabytes * MB / 2)).hex()


def used(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*.log"))


def log_folder(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-logs")


async def record_all(recorder: Recorder, db: Database, count: int) -> None:
    async with asyncio.timeout(60):
        while len(await invocations(db)) < count:
            await recorder.catch_up()


def is_deleted(shown: Texts) -> bool:
    return shown.is_dropped and shown.stderr.startswith(DELETED)


@pytest.mark.deep
@pytest.mark.boundary(
    "code-to-host", "What functions print stays within a quota of bytes and out of the platform's store."
)
@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_fifteen_calls_of_ten_megabytes_stay_in_the_quota_and_out_of_the_store(
    db: Database, folder: Path
) -> None:
    logs = make_logs(folder, function_mb=20)
    recorder, function_id = make_recorder(db, folder, logs), await make_function(db)
    store = Path(str(db.path))  # type: ignore[attr-defined]
    before = sum(path.stat().st_size for path in store.parent.glob(f"{store.name}*"))
    last = noise(14, 9.9)

    for number in range(15):
        write(folder, record(number, function_id, log=log(last if number == 14 else noise(number, 9.9))))
        await recorder.catch_up()
    await record_all(recorder, db, 15)

    grown = sum(path.stat().st_size for path in store.parent.glob(f"{store.name}*")) - before
    shown = await texts(db, logs)
    assert grown < MB
    assert used(log_folder(folder)) <= 20 * MB
    assert [is_deleted(each) for each in shown[:12]] == [True] * 12
    assert (shown[-1].stdout, shown[-1].is_dropped) == (last + "\n", False)


@pytest.mark.boundary("tenant-to-tenant", "A flood of one organization's function logs deletes nothing of another's.")
async def test_an_organization_has_a_quota_over_all_its_functions_and_others_keep_theirs(
    db: Database, folder: Path
) -> None:
    logs = make_logs(folder, function_mb=1, org_mb=2)
    recorder = make_recorder(db, folder, logs)
    flooding = [await make_function(db, org_id=7, name=f"f{number}") for number in range(4)]
    quiet = await make_function(db, org_id=8)
    write(folder, record(1, quiet, org_id=8, log=log("theirs")))
    await recorder.catch_up()

    for number in range(16):
        write(folder, record(number, flooding[number % 4], org_id=7, log=log(noise(number, 0.6))))
        await recorder.catch_up()
    await record_all(recorder, db, 17)

    shown = await texts(db, logs, org_id=7)
    assert used(log_folder(folder) / "7") <= 2 * MB
    deleted = [is_deleted(each) for each in shown]
    assert deleted == sorted(deleted, reverse=True)
    assert 4 <= deleted.count(False) <= 6
    assert await texts(db, logs, org_id=8) == [("theirs\n", "", False, False)]


@pytest.mark.boundary("code-to-host", "Logs of functions are not stored while the disk has less than its reserve.")
@pytest.mark.settings(disk_reserve_mb=2**40)
async def test_below_the_reserve_a_call_is_recorded_without_its_text_and_says_so(
    app: App, db: Database, settings: Settings
) -> None:
    team = await make_team(app.asgi, db)
    function_id = await make_function(db, team.org_id)
    write(settings.folder("spool"), record(5, function_id, org_id=team.org_id, log=log("much", "!more")))

    (found,) = (await team.api.get("/v1/functions/hello/invocations")).data["items"]

    assert (found["duration"], found["stdout"], found["logsDropped"]) == (0.005, "", True)
    assert "was not stored: the disk of the machine is almost full" in found["stderr"]
    assert used(settings.folder("logs")) == 0


async def test_a_disk_that_refuses_text_keeps_no_call_from_being_recorded(db: Database, folder: Path) -> None:
    logs = make_logs(folder)
    recorder, broken, sound = make_recorder(db, folder, logs), await make_function(db), await make_function(db, 1, "x")
    (log_folder(folder) / "1").mkdir(parents=True)
    (log_folder(folder) / "1" / str(broken)).touch()

    write(folder, record(1, broken, log=log("lost")), record(2, sound, log=log("kept")))
    await recorder.catch_up()

    lost, kept = await texts(db, logs)
    assert "was not stored: the disk of the machine refused it" in lost.stderr
    assert kept.stdout == "kept\n"


async def test_a_call_that_prints_nothing_touches_no_log_file(db: Database, folder: Path) -> None:
    recorder, function_id = make_recorder(db, folder), await make_function(db)

    write(folder, *(record(number, function_id) for number in range(100)))
    await recorder.catch_up()

    assert len(await invocations(db)) == 100
    assert not log_folder(folder).exists()


async def test_many_functions_cost_one_file_each_and_no_open_descriptor(db: Database, folder: Path) -> None:
    logs = make_logs(folder)
    recorder = make_recorder(db, folder, logs)
    functions = [await make_function(db, name=f"f{number}") for number in range(60)]
    opened = []
    with writing(folder, 4 * MB) as writer:
        for turn in range(5):
            for number, function_id in enumerate(functions):
                writer.append(record(turn * 60 + number, function_id, log=log(f"{turn} of {number}")))
            await recorder.catch_up()
            opened.append(len(os.listdir("/proc/self/fd")))

    assert max(opened) <= opened[0] + 5
    assert len(list(log_folder(folder).rglob("*.log"))) == 60
    assert [each.stdout for each in await texts(db, logs, function_id=functions[7])] == [
        f"{turn} of 7\n" for turn in range(5)
    ]


async def test_segments_rotate_by_day_and_go_when_they_are_old(db: Database, folder: Path, clock: ManualClock) -> None:
    logs = make_logs(folder)
    recorder, function_id = make_recorder(db, folder, logs), await make_function(db)

    for day in range(3):
        write(folder, record(day, function_id, log=log(f"day {day}")), record(9, function_id, log=log("again")))
        await recorder.catch_up()
        clock.advance(DAY_MS + 1)
    segments = sorted(log_folder(folder).rglob("*.log"))
    clock.advance(log_files.KEPT_MS - 2 * DAY_MS)
    await recorder.trim_logs()

    assert len(segments) == 3
    assert [path.exists() for path in segments] == [False, True, True]
    assert [is_deleted(each) for each in await texts(db, logs)] == [True, True, False, False, False, False]


async def test_a_log_that_another_machine_recorded_is_said_to_be_there(db: Database, folder: Path) -> None:
    recorder, function_id = make_recorder(db, folder), await make_function(db)
    write(folder, record(1, function_id, log=log("over there")))
    await recorder.catch_up()
    machine = recorder.logs.key.rpartition("_")[0]

    (shown,) = await texts(db, make_logs(folder.with_name("another")))

    assert shown.is_dropped
    assert f"is not here: the machine {machine} recorded the call" in shown.stderr


@pytest.mark.parametrize("damage", ["cut", "changed"])
async def test_text_that_was_damaged_is_never_shown_as_what_was_printed(
    db: Database, folder: Path, damage: str
) -> None:
    logs = make_logs(folder)
    recorder, function_id = make_recorder(db, folder, logs), await make_function(db)
    write(folder, record(1, function_id, log=log("printed")))
    await recorder.catch_up()
    (path,) = log_folder(folder).rglob("*.log")
    data = path.read_bytes()

    path.write_bytes(data[:-3] if damage == "cut" else data.replace(b"printed", b"PRINTED"))

    (shown,) = await texts(db, logs)
    assert (shown.stdout, shown.is_dropped) == ("", True)
    assert "cannot be read" in shown.stderr


async def test_lines_that_come_late_again_and_again_do_not_make_the_row_longer(db: Database, folder: Path) -> None:
    logs = make_logs(folder)
    recorder, function_id = make_recorder(db, folder, logs), await make_function(db)
    count = 3 * storing.MAX_LOG_PIECES
    with writing(folder) as writer:
        writer.append(record(1, function_id, log=log("first")))
        for number in range(count):
            await recorder.catch_up()
            writer.append(record(1, function_id, kind=LATE, log=log(f"late {number}")))
        await recorder.catch_up()

    (row,) = await invocations(db)
    ((stdout, *_),) = await texts(db, logs)
    assert stdout == "first\n" + "".join(f"late {number}\n" for number in range(count))
    assert row["log_ref"].count(",") <= storing.MAX_LOG_PIECES


async def test_records_that_come_again_after_a_failed_unit_do_not_write_their_text_again(
    db: Database, folder: Path
) -> None:
    logs = make_logs(folder)
    recorder, function_id = make_recorder(db, folder, logs), await make_function(db)
    is_broken = True

    def on_scheduled(tx: Tx, starts: list[Record], ends: list[Record]) -> None:
        if is_broken:
            raise RuntimeError("the store is away")

    recorder.on_scheduled = on_scheduled
    with writing(folder) as writer:
        writer.append(record(1, function_id, door=SCHEDULE, schedule_id=4, log=log("x" * 100)))
        failed = [await recorder.catch_up() for _ in range(5)]
        writer.append(record(2, function_id, log=log("y" * 100)))
        is_broken = False
        await recorder.catch_up()

    assert failed == [False] * 5
    assert [each.stdout for each in await texts(db, logs)] == ["x" * 100 + "\n", "y" * 100 + "\n"]
    assert used(log_folder(folder)) < 2 * 150


async def test_text_that_an_older_version_stored_in_a_row_is_shown_and_can_grow(
    app: App, db: Database, settings: Settings
) -> None:
    team = await make_team(app.asgi, db)
    function_id = await make_function(db, team.org_id)
    with writing(settings.folder("spool")) as writer:
        writer.append(record(1, function_id, org_id=team.org_id))
        await app.products.functions.recorder.catch_up()
        old = loglines.pack(log("from the row", "x" * 100_000))
        await db.write(lambda tx: tx.run(_SET_LOGS, new_logs=old))
        writer.append(record(1, function_id, org_id=team.org_id, kind=LATE, log=log("from a file")))

        (found,) = (await team.api.get("/v1/functions/hello/invocations")).data["items"]

    assert found["stdout"] == "from the row\n" + "x" * 100_000 + "\nfrom a file\n"
    assert not found["logsDropped"]


async def test_deleting_a_function_deletes_its_log_files_and_no_others(
    app: App, db: Database, settings: Settings, team: Team, run_jobs: RunJobs
) -> None:
    await team.create("goes")
    await team.create("stays")
    ids = {row["name"]: row["id"] for row in await rows(db, function)}
    for number, name in enumerate(("goes", "stays")):
        write(settings.folder("spool"), record(number, ids[name], org_id=team.org_id, log=log(name)))
    await app.products.functions.recorder.catch_up()
    place = settings.folder("logs") / "functions" / str(team.org_id)
    before = sorted(path.name for path in place.iterdir())

    await team.api.delete("/v1/functions/goes")
    await run_jobs()
    write(settings.folder("spool"), record(9, ids["goes"], org_id=team.org_id, log=log("too late")))
    await app.products.functions.recorder.catch_up()

    assert before == sorted(map(str, ids.values()))
    assert [path.name for path in place.iterdir()] == [str(ids["stays"])]


async def test_deleting_an_organization_deletes_the_log_files_of_all_its_functions(
    app: App, db: Database, settings: Settings, team: Team, run_jobs: RunJobs
) -> None:
    await team.create("one")
    (made,) = await rows(db, function)
    write(settings.folder("spool"), record(1, made["id"], org_id=team.org_id, log=log("text")))
    await app.products.functions.recorder.catch_up()
    place = settings.folder("logs") / "functions"
    before = [path.name for path in place.iterdir() if path.is_dir()]

    await db.write(lambda tx: jobs.add(tx, OrganizationDeleted(team.org_id)))
    await run_jobs()

    assert before == [str(team.org_id)]
    assert [path.name for path in place.iterdir() if path.is_dir()] == []


async def test_folders_of_functions_that_another_machine_deleted_go_with_the_next_round(
    db: Database, folder: Path
) -> None:
    recorder, gone, kept = make_recorder(db, folder), await make_function(db), await make_function(db, name="kept")
    write(folder, record(1, gone, log=log("a")), record(2, kept, log=log("b")))
    await recorder.catch_up()
    await db.write(lambda tx: tx.run(_DELETE_FUNCTION, id=gone))

    await recorder.trim_logs()

    assert [path.name for path in (log_folder(folder) / "1").iterdir()] == [str(kept)]


# The spool.


@pytest.mark.boundary(
    "code-to-host", "While records wait, the spool stays within its bound and drops logs before records."
)
async def test_a_spool_that_nobody_reads_drops_text_before_records_and_says_so(db: Database, folder: Path) -> None:
    function_id = await make_function(db)
    room = Room(most_bytes=16 * SMALL_FILE)
    writer = SpoolWriter(folder, SMALL_FILE, room)
    text = "x" * (SMALL_FILE // 2 + 1000)

    for number in range(40):
        writer.append(record(number, function_id, log=writer.limit_log(log(text), 1)))
    size = sum(path.stat().st_size for path in folder.iterdir())
    writer.close()
    recorder = make_recorder(db, folder)
    await record_all(recorder, db, 40)

    shown = await texts(db, recorder.logs)
    kept = [each.stdout == text + "\n" for each in shown]
    assert 6 <= kept.index(False) <= 9
    assert kept == sorted(kept, reverse=True)
    assert all("was dropped: too many records wait to be stored" in each.stderr for each in shown[kept.index(False) :])
    assert [each.is_dropped for each in shown] == [not each for each in kept]
    assert size <= room.most_bytes // 2 + 2 * SMALL_FILE


async def test_a_full_spool_refuses_records_until_there_is_room_again(
    db: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.runtime.edge.spool.ROOM_CHECK_INTERVAL_S", 0.0)
    function_id = await make_function(db)
    writer = SpoolWriter(folder, SMALL_FILE, Room(most_bytes=4 * SMALL_FILE))
    number = 0
    with contextlib.suppress(OSError):
        for number in range(10_000):
            writer.append(record(number, function_id))
    size = sum(path.stat().st_size for path in folder.iterdir())

    await record_all(make_recorder(db, folder), db, number)
    writer.append(record(number, function_id, log=writer.limit_log(log("x" * 1000), 1)))
    writer.close()
    recorder = make_recorder(db, folder)
    await record_all(recorder, db, number + 1)

    assert number < 10_000 - 1
    assert size <= 4 * SMALL_FILE
    assert [row["activation_id"] for row in await invocations(db)][-1] == activation(number)
    assert (await texts(db, recorder.logs))[-1].stdout == "x" * 1000 + "\n"


def test_below_the_reserve_of_the_disk_a_writer_drops_text_and_keeps_short_lines(folder: Path) -> None:
    writer = SpoolWriter(folder, SMALL_FILE, Room(reserve_bytes=2**60))

    (note,) = log_entries(bytes(writer.limit_log(log("x" * 1000), 1)))
    short = writer.limit_log(log("short"), 1)
    writer.close()

    assert "What this call printed (1,014 bytes) was dropped" in note.text
    assert short == log("short")


@pytest.mark.boundary(
    "tenant-to-tenant", "Functions of one organization that print too much lose text of their own only."
)
def test_an_organization_that_prints_too_much_loses_text_and_others_lose_none(folder: Path) -> None:
    writer = SpoolWriter(folder, SMALL_FILE)
    block = log("x" * MB)

    fitted = [bytes(writer.limit_log(block, 1)) for _ in range(200)]
    other = writer.limit_log(block, 2)
    short = writer.limit_log(log("short"), 1)
    writer.close()

    kept = [each == block for each in fitted]
    (note,) = log_entries(fitted[kept.index(False)])
    assert PRINTED_AT_ONCE // MB <= kept.index(False) < 200
    assert "was dropped: the functions of this organization print more than 2 MB a second" in note.text
    assert (other, short) == (block, log("short"))
