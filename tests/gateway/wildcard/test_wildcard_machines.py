"""The wildcard certificate of a platform with several machines: ordered once, and on each gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.gateway.wildcard.conftest import make_platform, restart
from tests.gateway.wildcard.update_server import UpdatedZone

from moorage.core.db.store import Database
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import Worker
from moorage.gateway import operator_certificate
from moorage.gateway.wildcard import jobs

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]


async def test_of_several_processes_one_orders_and_every_gateway_gets_the_certificate(
    db: Database, zone: UpdatedZone, tmp_path: Path
) -> None:
    platforms = [make_platform(db) for _ in range(3)]
    await db.write(jobs.request)

    async def work(number: int) -> None:
        worker = Worker(db, platforms[number].handlers, Telemetry(quiet=True))
        await worker.run_due()
        await db.write(jobs.request)
        await worker.run_due()

    await asyncio.gather(*map(work, range(3)))
    served = []
    for number in range(2):
        machine = restart(db, data=tmp_path / f"machine-{number}")
        await machine.gateway.sync_certificate()
        served.append(operator_certificate.find(machine.db.env.settings))

    assert len(zone.updates) == 4  # One order adds two records and removes them.
    assert served[0] == served[1]
    assert served[0] is not None
    assert served[0].covers("shop.apps.example.net")
