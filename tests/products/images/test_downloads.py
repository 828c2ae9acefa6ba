"""Copies of blobs that are sent: an organization has a limited number, until its clients have read them."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import IO

import pytest

from moorage.core.db.store import Database
from moorage.products.images import uploads
from moorage.products.images.failures import Refused
from moorage.products.images.uploads import Uploads

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("db", ["sqlite"], indirect=True)]

ORG, OTHER = 1, 2


async def open_copy(places: Uploads, org_id: int = ORG, size: int = 10) -> IO[bytes]:
    async with places.copied(org_id, size) as (path, keep):
        path.write_bytes(b"x" * size)
        file = path.open("rb")
        keep(file)
    return file


@pytest.mark.boundary("tenant-to-tenant", "Slow downloads of one organization's blobs do not fill the disk.")
async def test_slow_downloads_hold_a_limited_number_of_copies(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_DOWNLOADS", 2)
    places = Uploads(db.env.settings)
    first, second = await open_copy(places), await open_copy(places)

    with pytest.raises(Refused) as refused:
        await open_copy(places)
    other = await open_copy(places, OTHER)
    del second
    gc.collect()
    third = await open_copy(places)

    assert refused.value.status == 429
    assert [file.read() for file in (first, other, third)] == [b"x" * 10] * 3
    assert not list(Path(db.env.settings.folder("image-uploads"), "outgoing").iterdir())


async def test_copies_have_a_limit_of_bytes_and_a_single_one_has_none(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MAX_DOWNLOAD_BYTES", 15)
    places = Uploads(db.env.settings)

    large = await open_copy(places, size=20)
    with pytest.raises(Refused):
        await open_copy(places, size=1)
    del large
    gc.collect()

    assert (await open_copy(places, size=1)).read() == b"x"


async def test_a_failed_copy_is_not_counted(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_DOWNLOADS", 1)
    places = Uploads(db.env.settings)

    with pytest.raises(OSError, match="broken"):
        async with places.copied(ORG, 10):
            raise OSError("broken")

    assert (await open_copy(places)).read() == b"x" * 10
