"""Object storage in a folder and on a real S3 server, and its memory cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.core.artifacts.looking import real_now_ms
from tests.core.artifacts.s3_server import S3Server

from moorage.core.artifacts.objects import ArtifactDamaged, ArtifactsUnavailable, Objects, key_of, parse_key
from moorage.core.artifacts.states import ARTIFACT, ArtifactStatus
from moorage.core.kit.clock import HOUR_MS
from moorage.core.validated import SecretStr
from moorage.settings import Settings, as_environment

S = ArtifactStatus
DIGEST, COPY = "0123456789abcdef" * 4, "fedcba9876543210"
ALLOWED = {
    (S.PRESENT, S.DAMAGED),
    (S.PRESENT, S.DELETING),
    (S.DAMAGED, S.PRESENT),
    (S.DAMAGED, S.DELETING),
    (S.DELETING, S.PRESENT),
}


@pytest.mark.parametrize(("at", "to"), [(at, to) for at in S for to in S])
def test_an_artifact_has_these_moves_and_no_other(at: ArtifactStatus, to: ArtifactStatus) -> None:
    assert ARTIFACT.allows(at, to) == ((at, to) in ALLOWED)


def test_a_key_says_which_digest_and_which_copy_it_holds() -> None:
    key = key_of(DIGEST, COPY)

    assert key == f"sha256/01/{DIGEST[2:]}.{COPY}"
    assert parse_key(key) == (DIGEST, COPY)


@pytest.mark.parametrize("key", ["notes.txt", f"sha256/01/{DIGEST[2:]}", f"sha256/01/{DIGEST}.{COPY}", "sha256/../x"])
def test_a_key_that_is_not_ours_names_nothing(key: str) -> None:
    assert parse_key(key) is None


def test_an_object_that_is_not_there_has_no_size_cannot_be_read_and_can_be_deleted(objects: Objects) -> None:
    key = key_of(DIGEST, COPY)

    objects.delete(key)

    assert objects.size(key) is None
    with pytest.raises(ArtifactDamaged):
        list(objects.chunks(key, 5))


def test_a_listing_holds_our_objects_of_before_the_moment_and_nobody_elses(objects: Objects) -> None:
    objects.put(key_of(DIGEST, COPY), b"ours", 4)
    objects.put("sha256/01/notes", b"not ours", 8)

    before, after = (list(objects.older_than(real_now_ms() + shift)) for shift in (-HOUR_MS, HOUR_MS))

    assert [key for page in before for key in page] == []
    assert [key for page in after for key in page] == [key_of(DIGEST, COPY)]


@pytest.mark.parametrize("settings", ["folder"], indirect=True)
def test_half_written_files_of_a_killed_process_are_dropped_once_they_are_old(
    objects: Objects, settings: Settings
) -> None:
    objects.put(key_of(DIGEST, COPY), b"whole", 5)
    staged = settings.data / "artifacts" / "sha256" / "01" / f"{DIGEST[2:]}.{COPY}#1"
    staged.write_bytes(b"ha")

    early, late = (objects.drop_staged(real_now_ms() + shift) for shift in (-HOUR_MS, HOUR_MS))

    assert (early, late) == (0, 1)
    assert not staged.exists()
    assert objects.size(key_of(DIGEST, COPY)) == 5


@pytest.mark.group("s3")
def test_a_server_elsewhere_is_used_without_tls_where_that_is_permitted(s3: S3Server, tmp_path: Path) -> None:
    elsewhere = s3.endpoint.replace("127.0.0.1", "0.0.0.0")  # leads to loopback, and is no loopback address
    objects = Objects(s3.settings(tmp_path, artifacts_endpoint=elsewhere, artifacts_allow_http=True))

    objects.put(key_of(DIGEST, COPY), b"content", 7)

    assert objects.size(key_of(DIGEST, COPY)) == 7


@pytest.mark.group("s3")
@pytest.mark.parametrize("settings", ["s3"], indirect=True)
def test_a_bucket_that_refuses_the_key_is_unavailable(settings: Settings) -> None:
    refused = Objects(settings.model_copy(update={"artifacts_secret_key": SecretStr("wrong")}))

    with pytest.raises(ArtifactsUnavailable):
        refused.put(key_of(DIGEST, COPY), b"never", 5)


@pytest.mark.group("s3")
@pytest.mark.parametrize("settings", ["s3"], indirect=True)
def test_keys_are_never_sent_in_the_clear_to_another_machine(settings: Settings) -> None:
    plain = Objects(settings.model_copy(update={"artifacts_endpoint": "http://bucket.invalid"}))

    with pytest.raises(ArtifactsUnavailable) as refusal:
        plain.size(key_of(DIGEST, COPY))

    assert "builder error" in str(refusal.value)


LAZY = """
import sys
from moorage.core.artifacts.objects import Objects
from moorage.core.artifacts import store
from moorage.settings import load
objects = Objects(load())
before = "obstore" in sys.modules
objects.put("ready", b"yes", 3)
print(before, "obstore" in sys.modules)
"""


@pytest.mark.parametrize("settings", ["folder"], indirect=True)
def test_obstore_is_loaded_by_the_first_use_and_not_before(settings: Settings) -> None:
    assert run_python(LAZY, settings) == "False True"


GROWTH = """
import resource, sys
from pathlib import Path
from moorage.core.artifacts.objects import Objects
from moorage.settings import load
peak_mb = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
objects = Objects(load())
objects.put("ready", b"yes", 3)
before = peak_mb()
path = Path(sys.argv[1])
objects.put("large", path, path.stat().st_size)
read = sum(len(chunk) for chunk in objects.chunks("large", path.stat().st_size))
assert read == path.stat().st_size
print(peak_mb() - before)
"""


@pytest.mark.deep
@pytest.mark.parametrize(
    "settings",
    ["folder", pytest.param("s3", marks=[pytest.mark.group("s3"), pytest.mark.twin])],
    indirect=True,
)
def test_memory_does_not_grow_with_the_file(settings: Settings, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.touch()
    os.truncate(large, 256 * 1024 * 1024)

    grown_mb = int(run_python(GROWTH, settings, str(large)))

    assert grown_mb < 128


def run_python(script: str, settings: Settings, *args: str) -> str:
    command = [sys.executable, "-c", script, *args]
    return subprocess.run(
        command, env=as_environment(settings), check=True, capture_output=True, text=True
    ).stdout.strip()
