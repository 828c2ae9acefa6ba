"""Limits of a resource's secrets count the values that a request keeps."""

from __future__ import annotations

import pytest

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.vault import service as vault
from moorage.errors import BadRequest

pytestmark = pytest.mark.anyio

ORG, RESOURCE = 5, "project:1"
KB = 1024


async def replace(db: Database, *wanted: tuple[str, str | None]) -> tuple[list[str], list[str]]:
    return await db.write(lambda tx: vault.replace_all(tx, ORG, RESOURCE, wanted))


async def put(db: Database, **values: str) -> None:
    def unit(tx: Tx) -> None:
        for name, value in values.items():
            vault.put(tx, ORG, RESOURCE, name, value)

    await db.write(unit)


async def test_kept_values_count_towards_the_size(db: Database) -> None:
    await put(db, A="a" * 40 * KB)

    with pytest.raises(BadRequest) as refused:
        await replace(db, ("A", None), ("B", "b" * 24 * KB))

    assert refused.value.fields == {
        "secrets": "should have at most 64 KB in all, with the stored values of secrets that are sent without one"
    }
    assert await replace(db, ("A", None), ("B", "b" * (24 * KB - 2))) == (["B"], [])
    assert await replace(db, ("B", None), ("C", "c" * 40 * KB)) == (["C"], ["A"])


async def test_a_set_that_is_larger_already_may_stay_and_shrink_but_not_grow(db: Database) -> None:
    await put(db, A="a" * 40 * KB, B="b" * 40 * KB, C="c")

    with pytest.raises(BadRequest):
        await replace(db, ("A", None), ("B", None), ("C", "cc"))

    assert await replace(db, ("A", None), ("B", None), ("C", "d")) == (["C"], [])
    assert await replace(db, ("A", None), ("B", None)) == ([], ["C"])


async def test_the_number_of_secrets_is_limited(db: Database) -> None:
    with pytest.raises(BadRequest) as refused:
        await replace(db, *((f"N{number}", "") for number in range(1001)))

    assert refused.value.fields == {"secrets": "should have at most 1000 entries"}
