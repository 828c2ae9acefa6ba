"""Contract of an engine: volumes, and commands beside an app."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.runtime.engines.contract.conftest import Lab
from tests.runtime.engines.engine_support import APP_UID

from moorage.runtime.engines.ports import AppSpec, CommandEnd

pytestmark = pytest.mark.anyio

SHELL = ["/bin/sh", "-c"]


async def ensure(lab: Lab, *volumes: str) -> None:
    for volume in volumes:
        await lab.engine.volumes.ensure(volume, uid=lab.app().uid and APP_UID, size_mb=64)


def app(lab: Lab, key: str = "r1", **changed: Any) -> AppSpec:
    return lab.app(key, volume="17", disk_mb=64, **changed)


async def test_a_volume_is_created_once(lab: Lab) -> None:
    await ensure(lab, "17", "17", "18")

    assert await lab.engine.volumes.names() == ["17", "18"]
    assert await lab.engine.volumes.used_bytes("17") < 10_000


async def test_files_of_a_volume_outlive_the_app_that_wrote_them(lab: Lab) -> None:
    await ensure(lab, "17")
    await lab.start(app(lab))
    await lab.get("r1", "write", "note", "kept")
    await lab.engine.workloads.stop("r1", 10.0)

    await ensure(lab, "17")
    await lab.start(app(lab, "r2"))

    assert await lab.get("r2", "read", "note") == "kept"


async def test_the_size_of_a_volume_grows_with_its_files(lab: Lab) -> None:
    await ensure(lab, "17")
    await lab.start(app(lab))

    await lab.get("r1", "write", "note", "x" * 8000)

    async def has_grown() -> bool:
        return await lab.engine.volumes.used_bytes("17") >= 8000

    await lab.wait_for(has_grown, 150.0)  # A kubelet measures volumes once a minute.


async def test_a_discarded_volume_is_gone_and_others_stay(lab: Lab) -> None:
    await ensure(lab, "1", "17", "17-pr-3", "170")

    for _ in range(2):
        await lab.engine.volumes.discard("17")

    assert await lab.engine.volumes.names() == ["1", "170"]


async def test_a_volume_of_a_discarded_name_is_empty(lab: Lab) -> None:
    await ensure(lab, "17")
    await lab.start(app(lab))
    await lab.get("r1", "write", "note", "old")
    await lab.engine.workloads.stop("r1", 10.0)
    await lab.engine.volumes.discard("17")

    await ensure(lab, "17")
    await lab.start(app(lab, "r2"))

    assert await lab.get("r2", "read", "note") == ""


async def test_purging_is_safe_to_repeat_and_leaves_volumes_in_use(lab: Lab) -> None:
    await ensure(lab, "17")
    await lab.engine.volumes.discard("17")
    await ensure(lab, "17")

    for _ in range(2):
        await lab.engine.volumes.purge("17")

    assert await lab.engine.volumes.names() == ["17"]


async def run(lab: Lab, beside: AppSpec, script: str, timeout_s: float = 60.0) -> tuple[CommandEnd, str, str]:
    output = {"stdout": b"", "stderr": b""}

    def put(stream: str, data: bytes) -> None:
        output[stream] += data

    end = await lab.engine.commands.run(beside, [*SHELL, script], put, timeout_s=timeout_s)
    return end, output["stdout"].decode(), output["stderr"].decode()


async def test_a_command_has_two_streams_and_an_exit_code(lab: Lab) -> None:
    end, out, err = await run(lab, lab.app(), "echo out; echo err >&2; exit 3")

    assert (end, out, err) == (CommandEnd(3, None), "out\n", "err\n")


async def test_a_command_has_the_variables_of_the_app(lab: Lab) -> None:
    end, out, _ = await run(lab, lab.app(env={"PATH": "/usr/bin:/bin", "GREETING": "ahoy"}), "echo $GREETING")

    assert (end.code, out) == (0, "ahoy\n")


async def test_a_command_sees_the_volume_of_the_app_that_runs(lab: Lab) -> None:
    await ensure(lab, "17")
    await lab.start(app(lab))
    await lab.get("r1", "write", "note", "kept")

    end, out, _ = await run(lab, app(lab), "cat /data/note")

    assert (end.code, out) == (0, "kept")


async def test_a_command_that_takes_too_long_is_ended_with_a_reason(lab: Lab) -> None:
    end, out, _ = await run(lab, lab.app(), "echo up; sleep 600", timeout_s=1.0)

    assert out == "up\n"
    assert end.why is not None


async def test_a_cancelled_command_ends(lab: Lab) -> None:
    task = asyncio.create_task(run(lab, lab.app(), "sleep 30"))
    await asyncio.sleep(0.1)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
