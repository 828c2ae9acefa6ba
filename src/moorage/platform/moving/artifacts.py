"""Copy the artifacts of a data folder to S3, each verified by its digest.

The names are the same in both, so the rows of the store stay as they are. A repeated copy uploads only missing objects,
and verifies all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import partial

from moorage.core.artifacts.objects import ArtifactDamaged, ArtifactsUnavailable, Objects, key_of
from moorage.core.kit.records import dataclass
from moorage.platform.backups.archive import Progress, Report
from moorage.platform.moving import source
from moorage.platform.moving.errors import CannotMove
from moorage.settings import Settings

MAX_CONCURRENT_COPIES = 4  # Each uses at most 32 MB.
ARTIFACTS = "SELECT digest, copy, size FROM artifact WHERE status = 'present' ORDER BY id"
END_OF_TIME_MS = 253_402_300_799_000  # the year 9999


@dataclass(frozen=True)
class Stored:
    """An artifact that the store knows."""

    digest: str
    copy: str
    size: int

    @property
    def key(self) -> str:
        return key_of(self.digest, self.copy)


@dataclass
class Copied:
    artifacts: int = 0
    size: int = 0
    uploaded: int = 0
    damaged: list[str] = field(default_factory=list)  # digests of artifacts that are unusable in the folder already


def read_sqlite(settings: Settings) -> list[Stored]:
    """Return the artifacts of the SQLite store."""
    with source.opened(settings) as connection:
        return [Stored(*row) for row in connection.execute(ARTIFACTS)]


def read_postgres(settings: Settings) -> list[Stored]:
    """Return the artifacts of the store on PostgreSQL."""
    import psycopg

    with psycopg.connect(settings.database_url.get_secret_value(), connect_timeout=10) as connection:
        return [Stored(*row) for row in connection.execute(ARTIFACTS)]


def copy(settings: Settings, artifacts: Sequence[Stored], report: Report) -> Copied:
    """Copy artifacts from the data folder to the bucket of `artifacts_url`; raises CannotMove. Safe to repeat."""
    folder, bucket = Objects(settings.model_copy(update={"artifacts_url": ""})), Objects(settings)
    total = sum(each.size for each in artifacts)
    copied, progress = Copied(), Progress(report, "copying artifacts", total)
    with _explained(settings.artifacts_url):
        _check_prefix(bucket, {each.key for each in artifacts}, settings.artifacts_url)
        report(f"copying {len(artifacts)} artifacts to {settings.artifacts_url}")
        with ThreadPoolExecutor(MAX_CONCURRENT_COPIES, thread_name_prefix="artifacts") as threads:
            results = threads.map(partial(_copy_one, folder, bucket), artifacts)
            for artifact, uploaded in zip(artifacts, results, strict=True):
                progress.add(artifact.size)
                if uploaded is None:
                    copied.damaged.append(artifact.digest)
                    continue
                copied.artifacts += 1
                copied.size += artifact.size
                copied.uploaded += uploaded
    return copied


def _check_prefix(bucket: Objects, known: set[str], url: str) -> None:
    """Raise CannotMove if the prefix has artifacts of another store: a platform deletes unknown artifacts."""
    for keys in bucket.older_than(END_OF_TIME_MS):
        if foreign := next((key for key in keys if key not in known), None):
            raise CannotMove(f"{url} holds artifacts that this store does not know, such as {foreign}: choose a prefix")


def _copy_one(folder: Objects, bucket: Objects, artifact: Stored) -> bool | None:
    """Copy an artifact; return whether it was uploaded, or None if it is missing or damaged in the folder."""
    assert folder.folder is not None
    try:
        folder.verify(artifact.key, artifact.digest, artifact.size)
    except ArtifactDamaged:
        return None
    if bucket.size(artifact.key) == artifact.size:
        with contextlib.suppress(ArtifactDamaged):  # An interrupted upload is not visible, but another program's is.
            bucket.verify(artifact.key, artifact.digest, artifact.size)
            return False
    bucket.put(artifact.key, folder.folder / artifact.key, artifact.size)
    bucket.verify(artifact.key, artifact.digest, artifact.size)
    return True


@contextlib.contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except ArtifactsUnavailable as error:
        raise CannotMove(
            f"cannot use {url}: {error}. Check MOORAGE_ARTIFACTS_ENDPOINT, MOORAGE_ARTIFACTS_REGION and the keys"
        ) from error
    except ArtifactDamaged as error:
        raise CannotMove(f"{url} returns other bytes than were stored: {error}. Repeat the move") from error
