"""Secrets at rest: encryption, binding to their row, and key rotation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update
from tests.accounts.identity.support import behind_the_back, rows_of, whole_store
from tests.builders import make_org

from moorage.core.audit import service as audit
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.crypto import CannotDecrypt, KeyRing
from moorage.core.vault import service as vault
from moorage.core.vault.tables import ROTATE, vault_secret
from moorage.platform.admin import rotate

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.boundary(
        "tenant-to-tenant", "Secrets are encrypted at rest and bound to their organization and resource."
    ),
]

OLD, NEW = b"k" * 31 + b"1", b"k" * 31 + b"2"


def hold(db: Database, *keys: bytes) -> None:
    """Continue with other master keys, as after a restart with a new MOORAGE_MASTER_KEY."""
    db.env = replace(db.env, ring=KeyRing(keys))


async def put(db: Database, value: str, *, org_id: int = 5, resource: str = "project:1", name: str = "TOKEN") -> None:
    await db.write(lambda tx: vault.put(tx, org_id, resource, name, value))


async def find(db: Database, *, org_id: int = 5, resource: str = "project:1", name: str = "TOKEN") -> str | None:
    return await db.read(lambda tx: vault.find(tx, org_id, resource, name))


async def key_ids(db: Database) -> set[str]:
    rows = await db.read(lambda tx: rows_of(tx, vault_secret))
    return {row["ciphertext"].split(".")[1] for row in rows}


async def test_a_secret_is_read_back_replaced_and_removed(db: Database) -> None:
    await put(db, "first")
    await put(db, "zweiter ✓")

    assert await find(db) == "zweiter ✓"
    assert await db.write(lambda tx: vault.remove(tx, 5, "project:1", "TOKEN")) is True
    assert await find(db) is None
    assert await db.write(lambda tx: vault.remove(tx, 5, "project:1", "TOKEN")) is False


async def test_the_store_holds_no_secret_in_clear(db: Database) -> None:
    await put(db, "correct-horse-battery")

    assert "correct-horse" not in repr(await whole_store(db))


async def test_the_same_value_never_looks_the_same(db: Database) -> None:
    await put(db, "same", name="A")
    await put(db, "same", name="B")

    rows = await db.read(lambda tx: rows_of(tx, vault_secret))
    assert len({row["ciphertext"] for row in rows}) == len(rows)


async def test_secrets_are_listed_by_resource_and_organization(db: Database) -> None:
    await put(db, "1", name="B")
    await put(db, "2", name="A")
    await put(db, "3", name="C", resource="project:2")
    await put(db, "4", name="D", org_id=6)

    assert await db.read(lambda tx: vault.names(tx, 5, "project:1")) == ["A", "B"]
    assert await db.read(lambda tx: vault.values(tx, 5, "project:1")) == {"A": "2", "B": "1"}
    await db.write(lambda tx: vault.remove_all(tx, 5, "project:1"))
    assert await db.read(lambda tx: vault.names(tx, 5, "project:1")) == []
    assert await find(db, name="D", org_id=6) == "4"


async def test_a_ciphertext_that_was_moved_does_not_decrypt(db: Database) -> None:
    elsewhere = ({"org_id": 6}, {"resource": "project:2"}, {"name": "OTHER"})
    for place in elsewhere:
        await put(db, "secret")
        await put(db, "theirs", **place)
        rows = await db.read(lambda tx: rows_of(tx, vault_secret))
        secret = next(r for r in rows if (r["org_id"], r["resource"], r["name"]) == (5, "project:1", "TOKEN"))
        theirs = rows[-1]["id"]

        await behind_the_back(
            db, update(vault_secret).where(vault_secret.c.id == theirs).values(ciphertext=secret["ciphertext"])
        )

        with pytest.raises(CannotDecrypt):
            await find(db, **place)


async def test_a_damaged_ciphertext_raises_instead_of_being_empty(db: Database) -> None:
    await put(db, "secret")
    good = (await db.read(lambda tx: rows_of(tx, vault_secret)))[-1]["ciphertext"]
    _, key, nonce, sealed = good.split(".")

    for bad in ("", "x", f"v2.{key}.{nonce}.{sealed}", f"v1.00000000.{nonce}.{sealed}", f"v1.{key}.{nonce}.AAAA"):
        await behind_the_back(db, update(vault_secret).where(vault_secret.c.name == "TOKEN").values(ciphertext=bad))
        with pytest.raises(CannotDecrypt):
            await find(db)


async def test_rotation_moves_every_secret_to_the_new_key_and_the_old_one_can_go(db: Database) -> None:
    org = await make_org(db)
    await put(db, "secret")
    hold(db, NEW, OLD)
    before = await key_ids(db)
    assert await find(db) == "secret"

    changed = await rotate(db)

    rows = await db.read(lambda tx: rows_of(tx, vault_secret))
    assert (before, changed) == ({KeyRing((OLD,)).current_id}, len(rows))
    assert await key_ids(db) == {KeyRing((NEW,)).current_id}
    hold(db, NEW)
    assert await find(db) == "secret"
    assert await db.read(lambda tx: audit.verify(tx, org.id)) == (1, None)


async def test_rotating_again_changes_nothing(db: Database) -> None:
    await put(db, "secret")
    hold(db, NEW, OLD)
    await rotate(db)
    rows = await db.read(lambda tx: rows_of(tx, vault_secret))

    assert await rotate(db) == 0
    assert await db.read(lambda tx: rows_of(tx, vault_secret)) == rows


async def test_rotation_goes_on_past_a_batch(db: Database) -> None:
    def fill(tx: Tx) -> None:
        for number in range(vault.BATCH + 10):
            vault.put(tx, 5, "project:1", f"N{number}", f"value {number}")

    await db.write(fill)
    hold(db, NEW, OLD)

    await rotate(db)

    hold(db, NEW)
    values = await db.read(lambda tx: vault.values(tx, 5, "project:1"))
    assert values == {f"N{number}": f"value {number}" for number in range(vault.BATCH + 10)}


async def test_rotation_does_not_bring_back_a_value_that_was_changed_since_it_was_read(db: Database) -> None:
    await put(db, "old value")
    read = (await db.read(lambda tx: rows_of(tx, vault_secret)))[-1]
    await put(db, "new value")

    late = {"id": read["id"], "old": read["ciphertext"], "new": "v1.x.y.z", "now": 0}
    touched = await db.write(lambda tx: tx.run(ROTATE, **late))

    assert touched == 0
    assert await find(db) == "new value"


async def test_without_its_key_a_secret_stays_shut_and_says_which_key_is_missing(db: Database) -> None:
    await put(db, "secret")
    hold(db, NEW)

    with pytest.raises(CannotDecrypt, match=KeyRing((OLD,)).current_id):
        await find(db)
