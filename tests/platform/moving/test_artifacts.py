"""Moves of artifacts from a data folder to a real S3 server."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.command import moorage
from tests.core.artifacts.s3_server import S3Server, running_s3
from tests.platform.backup_support import settings_for, tree
from tests.postgres_server import PostgresServer

from moorage.core.artifacts.objects import ArtifactDamaged, Objects
from moorage.core.artifacts.store import ArtifactStore
from moorage.platform import opening
from moorage.platform.moving import artifacts
from moorage.platform.moving.artifacts import Stored
from moorage.settings import Settings

pytestmark = pytest.mark.group("postgres")

LARGE = secrets.token_bytes(9 * 2**20)  # more than one part of an upload


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


@pytest.fixture
def bucket(data: Path, s3: S3Server) -> Settings:
    """Settings of the platform after the move."""
    return s3.settings(data)


def stored(data: Path, *contents: bytes) -> list[Stored]:
    """Store artifacts in the data folder, and return all."""
    opened = opening.open_store(settings_for(data, disk_reserve_mb=0))

    async def put() -> None:
        for number, content in enumerate(contents):
            await ArtifactStore(opened.db).put_bytes(1, content, owner=f"test:{number}")

    asyncio.run(put())
    opened.close()
    return artifacts.read_sqlite(settings_for(data))


def environment_of(bucket: Settings) -> dict[str, str]:
    return {
        "ARTIFACTS_ENDPOINT": bucket.artifacts_endpoint,
        "ARTIFACTS_ACCESS_KEY": bucket.artifacts_access_key.get_secret_value(),
        "ARTIFACTS_SECRET_KEY": bucket.artifacts_secret_key.get_secret_value(),
    }


async def fetched(settings: Settings, digest: str, target: Path) -> bytes:
    """Return an artifact as a platform with these settings reads it."""
    opened = opening.open_store(settings)
    await ArtifactStore(opened.db).fetch(1, digest, target)
    opened.close()
    return target.read_bytes()


def test_store_and_artifacts_move_in_one_command(
    data: Path, bucket: Settings, postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.create_database()
    known = {each.size: each for each in stored(data, b"", b"page", LARGE)}
    before = tree(data, "artifacts", "store/moorage.db")

    done = moorage(
        "move", "--to-postgres", url, "--to-s3", bucket.artifacts_url, "--data", data, **environment_of(bucket)
    )

    assert done.returncode == 0, done.stderr
    assert f"MOORAGE_ARTIFACTS_URL={bucket.artifacts_url}" in done.stdout
    assert tree(data, "artifacts", "store/moorage.db") == before
    moved = bucket.model_copy(update={"database_url": settings_for(data, database_url=url).database_url})
    for content in (b"", b"page", LARGE):
        assert asyncio.run(fetched(moved, known[len(content)].digest, tmp_path / "copy")) == content
    postgres.drop_database(url)


def test_a_repeated_copy_uploads_only_missing_and_damaged_objects(data: Path, bucket: Settings) -> None:
    known = stored(data, b"one", b"two", b"six")
    artifacts.copy(bucket, known, print)
    objects = Objects(bucket)
    objects.delete(known[0].key)
    objects.put(known[1].key, b"bad", 3)

    copied = artifacts.copy(bucket, known, print)

    assert (copied.artifacts, copied.uploaded, copied.damaged) == (3, 2, [])
    for each in known:
        objects.verify(each.key, each.digest, each.size)


def test_an_artifact_that_is_damaged_in_the_folder_is_named_and_the_others_are_copied(
    data: Path, bucket: Settings
) -> None:
    known = stored(data, b"good", b"damaged", b"missing")
    (data / "artifacts" / known[1].key).write_bytes(b"changed")
    (data / "artifacts" / known[2].key).unlink()

    done = moorage("move", "--to-s3", bucket.artifacts_url, "--data", data, **environment_of(bucket))

    assert done.returncode == 0, done.stderr
    assert "copied 1 artifacts" in done.stdout
    assert all(f"the artifact {each.digest} is missing or damaged" in done.stdout for each in known[1:])
    with pytest.raises(ArtifactDamaged):
        Objects(bucket).verify(known[1].key, known[1].digest, known[1].size)


def test_a_prefix_with_artifacts_of_another_installation_is_left_alone(data: Path, bucket: Settings) -> None:
    known = stored(data, b"mine")
    foreign = Stored("ab" * 32, "0123456789abcdef", 5)
    Objects(bucket).put(foreign.key, b"other", 5)

    done = moorage("move", "--to-s3", bucket.artifacts_url, "--data", data, **environment_of(bucket))

    assert done.returncode == 1
    assert "this store does not know" in done.stderr
    assert Objects(bucket).size(known[0].key) is None


def test_a_bucket_with_other_keys_is_explained(data: Path, bucket: Settings) -> None:
    stored(data, b"mine")
    given = {**environment_of(bucket), "ARTIFACTS_SECRET_KEY": "wrong"}

    done = moorage("move", "--to-s3", bucket.artifacts_url, "--data", data, **given)

    assert done.returncode == 1
    assert f"cannot use {bucket.artifacts_url}" in done.stderr


@pytest.mark.deep
def test_artifacts_of_a_platform_on_postgres_move_too(data: Path, bucket: Settings, postgres: PostgresServer) -> None:
    url = postgres.create_database()
    known = stored(data, b"mine")
    moorage("move", "--to-postgres", url, "--data", data)

    done = moorage("move", "--to-s3", bucket.artifacts_url, "--data", data, DATABASE_URL=url, **environment_of(bucket))

    assert done.returncode == 0, done.stderr
    Objects(bucket).verify(known[0].key, known[0].digest, known[0].size)
    postgres.drop_database(url)
