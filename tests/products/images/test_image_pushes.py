"""The distribution API with raw requests: uploads, manifests, tags, roles and hostile clients."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.products.images.image_pushes import (
    OCTETS,
    Harbor,
    image,
    index,
    parts,
    running_harbor,
    stranger_token,
)
from tests.runtime.images.registry_support import descriptor, digest_of

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.kit.clock import DAY_MS
from moorage.products.images import deploying, documents, service, tables
from moorage.products.images.manifest_http import Manifests
from moorage.products.projects import service as projects
from moorage.products.projects.service import NewProject
from moorage.runtime.images import machine
from moorage.runtime.images.manifests import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST
from moorage.runtime.images.registry import MAX_MANIFEST_BYTES

BLOB = os.urandom(100_000)
DIGEST = digest_of(BLOB)


def test_the_login_is_a_token_as_the_password(harbor: Harbor) -> None:
    without = harbor.call("GET", "/v2/", token=None)
    wrong = harbor.call("GET", "/v2/", token="psk_test_wrong")
    right = harbor.call("GET", "/v2/")
    bearer = harbor.call("GET", "/v2/", token=None, Authorization=f"Bearer {harbor.token}")

    assert [each.status for each in (without, wrong, right, bearer)] == [401, 401, 200, 200]
    assert without.headers["www-authenticate"].startswith("Basic ")
    assert without.code == wrong.code == "UNAUTHORIZED"
    assert right.headers["docker-distribution-api-version"] == "registry/2.0"


@pytest.mark.parametrize(
    "path", ["/v2/projects", "/v2/_catalog", "/v2/a/b", "/v2/a/b/c/d", "/v2/blobs/x", "/v2/tags/list"]
)
def test_a_path_that_no_registry_has_is_not_found_before_the_login(harbor: Harbor, path: str) -> None:
    for method in ("GET", "POST"):
        answer = harbor.call(method, path, token=None)

        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (404, "not_found")


def test_a_blob_is_uploaded_in_one_request(harbor: Harbor) -> None:
    made = harbor.call("POST", f"one/blobs/uploads/?digest={DIGEST}", BLOB, Content_Type=OCTETS)

    head = harbor.call("HEAD", f"one/blobs/{DIGEST}")
    body = harbor.call("GET", f"one/blobs/{DIGEST}")
    piece = harbor.call("GET", f"one/blobs/{DIGEST}", Range="bytes=100-199")
    rest = harbor.call("GET", f"one/blobs/{DIGEST}", Range="bytes=99990-")
    beyond = harbor.call("GET", f"one/blobs/{DIGEST}", Range="bytes=100000-")

    assert (made.status, made.headers["docker-content-digest"]) == (201, DIGEST)
    assert (head.status, head.headers["content-length"], head.body) == (200, "100000", b"")
    assert body.body == BLOB
    assert (piece.status, piece.body, piece.headers["content-range"]) == (206, BLOB[100:200], "bytes 100-199/100000")
    assert rest.body == BLOB[99_990:]
    assert beyond.status == 416
    assert harbor.uploads == []


def test_a_blob_is_uploaded_in_chunks_that_follow_each_other(harbor: Harbor) -> None:
    place = harbor.begin("chunks")

    first = harbor.call("PATCH", place, BLOB[:60_000], Content_Type=OCTETS, Content_Range="0-59999")
    gap = harbor.call("PATCH", place, BLOB[70_000:], Content_Type=OCTETS, Content_Range="70000-99999")
    shown = harbor.call("GET", place)
    second = harbor.call("PATCH", place, iter([BLOB[60_000:80_000], BLOB[80_000:90_000]]), Content_Type=OCTETS)
    done = harbor.call("PUT", f"{place}?digest={DIGEST}", BLOB[90_000:], Content_Type=OCTETS)

    assert (first.status, first.headers["range"]) == (202, "0-59999")
    assert (gap.status, gap.code) == (416, "BLOB_UPLOAD_INVALID")
    assert (shown.status, shown.headers["range"]) == (204, "0-59999")
    assert (second.status, second.headers["range"]) == (202, "0-89999")
    assert done.status == 201
    assert harbor.call("GET", f"chunks/blobs/{DIGEST}").body == BLOB


def test_an_upload_can_be_cancelled(harbor: Harbor) -> None:
    place = harbor.begin("cancelled")

    assert harbor.call("DELETE", place).status == 204
    assert harbor.call("PATCH", place, b"x").code == "BLOB_UPLOAD_UNKNOWN"
    assert harbor.uploads == []


def test_a_wrong_digest_is_refused_and_nothing_stays(harbor: Harbor) -> None:
    for digest in (digest_of(b"other"), "sha256:short", "md5:0", ""):
        answer = harbor.call("PUT", f"{harbor.begin('lies')}?digest={digest}", BLOB)

        assert (answer.status, answer.code) == (400, "DIGEST_INVALID")
    assert harbor.call("HEAD", f"lies/blobs/{digest_of(b'other')}").status == 404
    for path in harbor.uploads:  # A request with an invalid digest reads no body and ends no upload.
        assert path.stat().st_size == 0
        path.unlink()


def test_a_blob_of_another_repository_is_mounted(harbor: Harbor) -> None:
    harbor.push_blob("source", BLOB)

    mounted = harbor.call("POST", f"mounted/blobs/uploads/?mount={DIGEST}&from={harbor.slug}/source")
    missing = harbor.call("POST", f"mounted/blobs/uploads/?mount={digest_of(b'x')}&from={harbor.slug}/source")

    assert mounted.status == 201
    assert harbor.call("GET", f"mounted/blobs/{DIGEST}").body == BLOB
    assert missing.status == 202


@pytest.mark.boundary("tenant-to-tenant", "No organization reads or mounts pushed images of another one.")
def test_another_organization_neither_reads_mounts_nor_pushes(harbor: Harbor) -> None:
    digest = harbor.push("ours")
    secret = parts()[1]
    token = asyncio.run(stranger_token(harbor.platform))

    for method, path in (
        ("GET", "ours/manifests/latest"),
        ("GET", f"ours/manifests/{digest}"),
        ("GET", f"ours/blobs/{digest_of(secret)}"),
        ("GET", "ours/tags/list"),
        ("POST", "ours/blobs/uploads/"),
        ("DELETE", "ours/manifests/latest"),
    ):
        answer = harbor.call(method, path, token=token)
        assert (answer.status, answer.code) == (404, "NAME_UNKNOWN"), (method, path)
    slug = json.loads(harbor.call("GET", "/v1/orgs", token=None, Authorization=f"Bearer {token}").body)["data"][0][
        "slug"
    ]
    mount = harbor.call(
        "POST", f"/v2/{slug}/theirs/blobs/uploads/?mount={digest_of(secret)}&from={harbor.slug}/ours", token=token
    )
    taken = harbor.call("POST", f"/v2/{slug}/ours/blobs/uploads/", token=token)

    assert mount.status == 202
    assert harbor.call("HEAD", f"/v2/{slug}/theirs/blobs/{digest_of(secret)}", token=token).status == 404
    assert (taken.status, taken.code) == (403, "DENIED")  # The name of the project is taken.


@pytest.mark.boundary("role-to-role", "A viewer pulls images and pushes none.")
def test_a_viewer_pulls_and_does_not_push(harbor: Harbor) -> None:
    harbor.push("readable")
    token = harbor.tokens[Role.VIEWER]

    assert harbor.call("GET", "readable/manifests/latest", token=token).status == 200
    assert harbor.call("GET", "readable/tags/list", token=token).status == 200
    for method, path in (
        ("POST", "readable/blobs/uploads/"),
        ("PUT", "readable/manifests/latest"),
        ("DELETE", "readable/manifests/latest"),
        ("POST", "fresh/blobs/uploads/"),
    ):
        answer = harbor.call(method, path, token=token)
        assert (answer.status, answer.code) == (403, "DENIED")
    assert harbor.project("fresh") is None


def test_the_first_push_creates_a_project_and_each_tag_is_deployed(harbor: Harbor) -> None:
    digest = harbor.push("first")
    project = harbor.project("first")
    again = harbor.push("first")
    harbor.push("first", "v2", b"changed")

    assert project is not None
    assert (project.slug, project.source, project.language) == ("container", "image", "docker")
    assert project.public_image == f"localhost:8080/{harbor.slug}/first:latest"
    assert again == digest  # the same image under the same tag: nothing to deploy
    assert harbor.deployment_count("first") == 2
    changed = harbor.project("first")
    assert changed is not None
    assert changed.public_image == f"localhost:8080/{harbor.slug}/first:v2"


def test_a_failed_deployment_is_repeated_by_the_same_push(harbor: Harbor) -> None:
    harbor.push("flaky")
    harbor.fail_latest("flaky")

    harbor.push("flaky")

    assert harbor.deployment_count("flaky") == 2


def test_a_push_to_a_project_of_another_kind_is_refused_before_the_upload(harbor: Harbor) -> None:
    org_id, db = harbor.platform.org_id, harbor.platform.db

    def make(tx: Any) -> None:
        standing = orgs.get(tx, org_id).standing
        projects.create(tx, org_id, THE_PLATFORM, standing, NewProject("from-git", "static", repository_name="a/b"))

    asyncio.run(db.write(make))

    answer = harbor.call("POST", "from-git/blobs/uploads/")

    assert (answer.status, answer.code) == (403, "DENIED")
    assert "is deployed from a repository" in answer.message


def test_an_organization_may_refuse_projects_by_pushes(harbor: Harbor) -> None:
    org_id, db = harbor.platform.org_id, harbor.platform.db
    asyncio.run(db.write(lambda tx: orgs.set_create_on_push(tx, org_id, THE_PLATFORM, False)))
    try:
        answer = harbor.call("POST", "unwanted/blobs/uploads/")
    finally:
        asyncio.run(db.write(lambda tx: orgs.set_create_on_push(tx, org_id, THE_PLATFORM, True)))

    assert (answer.status, answer.code) == (403, "DENIED")


def test_an_index_is_deployed_for_this_machine(harbor: Harbor) -> None:
    here, other = image(b"here"), image(b"other")
    for content in (b"here", b"other"):
        for body in parts(content):
            harbor.push_blob("many", body)
    document = index((machine.architecture(), here), ("s390x", other))

    early = harbor.put_manifest("many", "v1", document)
    digest = digest_of(json.dumps(here).encode())
    pushed = harbor.put_manifest("many", digest, here)
    late = harbor.put_manifest("many", "v1", document)
    nowhere = harbor.put_manifest("many", "v2", index(("s390x", other)))

    assert (early.status, early.code) == (404, "MANIFEST_UNKNOWN")
    assert pushed.status == late.status == 201
    assert harbor.call("GET", "many/manifests/v1").body == json.dumps(document).encode()
    assert (nowhere.status, nowhere.code) == (400, "MANIFEST_INVALID")
    assert "this machine is linux/" in nowhere.message
    assert harbor.deployment_count("many") == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (
            {"layers": [{"mediaType": f"{OCI_LAYER}+gzip", "digest": digest_of(b"gone"), "size": 4}]},
            "MANIFEST_BLOB_UNKNOWN",
        ),
        ({"layers": [{"mediaType": OCI_LAYER, "digest": "sha256:x", "size": 4}]}, "MANIFEST_INVALID"),
        ({"layers": [{"mediaType": OCI_LAYER, "digest": digest_of(b"gone"), "size": -1}]}, "MANIFEST_INVALID"),
        ({"layers": "none"}, "MANIFEST_INVALID"),
        ({"config": None}, "MANIFEST_INVALID"),
        ({"config": descriptor(parts()[0], "application/x-unknown")}, "MANIFEST_INVALID"),
        ({"config": descriptor(parts()[0], OCI_CONFIG) | {"size": 5}}, "MANIFEST_INVALID"),
        ({"mediaType": "application/vnd.docker.distribution.manifest.v1+json"}, "MANIFEST_INVALID"),
    ],
)
def test_a_bad_manifest_is_refused(harbor: Harbor, change: dict[str, Any], code: str) -> None:
    for body in parts():
        harbor.push_blob("bad", body)

    answer = harbor.put_manifest("bad", "latest", image() | change)

    assert (answer.status // 100, answer.code) == (4, code)
    assert harbor.project("bad") is None


def test_a_manifest_that_a_browser_would_show_as_a_page_is_refused(harbor: Harbor) -> None:
    for body in parts():
        harbor.push_blob("page", body)
    manifest = json.dumps({key: value for key, value in image().items() if key != "mediaType"}).encode()

    answer = harbor.call("PUT", f"page/manifests/{digest_of(manifest)}", manifest, Content_Type="text/html")

    assert (answer.status, answer.code) == (400, "MANIFEST_INVALID")


@pytest.mark.boundary("tenant-to-tenant", "A manifest of an image delays requests of other organizations a little.")
def test_a_large_manifest_is_accepted_and_one_with_millions_of_values_refused(harbor: Harbor) -> None:
    for body in parts():
        harbor.push_blob("large", body)

    large = harbor.put_manifest("large", "v1", image() | {"annotations": {"note": "x" * 3_000_000}})
    costly = harbor.put_manifest("large", "v2", image() | {"annotations": [[]] * 900_000})

    assert large.status == 201
    assert (costly.status, costly.code) == (400, "MANIFEST_INVALID")
    assert "100,000 values" in costly.message


def test_documents_that_are_no_manifest_are_refused(harbor: Harbor) -> None:
    harbor.begin("odd")
    for body in (b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"manifests": 7}', b"\xff"):
        answer = harbor.call("PUT", "odd/manifests/latest", body, Content_Type=OCI_MANIFEST)
        assert (answer.status, answer.code) == (400, "MANIFEST_INVALID"), body[:20]
    large = harbor.call("PUT", "odd/manifests/latest", b" " * (MAX_MANIFEST_BYTES + 1), Content_Type=OCI_MANIFEST)
    other = harbor.put_manifest("odd", digest_of(b"other"), image())

    assert (large.status, large.code) == (413, "SIZE_INVALID")
    assert (other.status, other.code) == (400, "DIGEST_INVALID")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "name/manifests/v1", 404),
        ("GET", "name/manifests/..%2f", 404),
        ("GET", "name/manifests/-v1", 400),
        ("GET", "Upper/manifests/v1", 404),
        ("GET", "a/b/manifests/v1", 404),
        ("GET", "name/blobs/sha256:x", 404),
        ("POST", "name/blobs/sha256:x", 405),
        ("POST", "name/manifests/v1", 405),
        ("GET", "name/blobs/uploads/", 405),
        ("PATCH", "name/blobs/uploads/../../etc", 404),
        ("GET", "name/blobs/uploads/0123", 404),
        ("GET", "name/tags/list", 404),
    ],
)
def test_paths_that_lead_nowhere(harbor: Harbor, method: str, path: str, status: int) -> None:
    answer = harbor.call(method, path)

    assert answer.status == status
    assert answer.code


def test_tags_are_listed_in_pages_and_deleted(harbor: Harbor) -> None:
    for tag in ("v1", "v2", "v3"):
        digest = harbor.push("tagged", tag)

    first = harbor.call("GET", "tagged/tags/list?n=2")
    link = first.headers["link"].partition(">")[0].strip("<")
    second = harbor.call("GET", link)
    deleted = harbor.call("DELETE", "tagged/manifests/v1")
    huge = harbor.call("GET", f"tagged/tags/list?n={'9' * 5_000}")
    rest = harbor.call("GET", "tagged/tags/list")
    all_gone = harbor.call("DELETE", f"tagged/manifests/{digest}")

    assert json.loads(first.body) == {"name": f"{harbor.slug}/tagged", "tags": ["v1", "v2"]}
    assert json.loads(second.body)["tags"] == ["v3"]
    assert deleted.status == all_gone.status == 202
    assert json.loads(huge.body) == json.loads(rest.body)
    assert json.loads(rest.body)["tags"] == ["v2", "v3"]
    assert harbor.call("GET", "tagged/manifests/v2").code == "MANIFEST_UNKNOWN"
    assert json.loads(harbor.call("GET", "tagged/tags/list").body)["tags"] == []


def test_an_abandoned_upload_and_unused_parts_are_collected(harbor: Harbor) -> None:
    db, org_id = harbor.platform.db, harbor.platform.org_id
    harbor.push("kept", "v1", b"one")
    harbor.push("kept", "v2", b"two")
    harbor.call("DELETE", "kept/manifests/v1")
    orphan = harbor.push_blob("kept", os.urandom(100))
    place = harbor.begin("kept")
    harbor.call("PATCH", place, b"half")
    images = harbor.platform.app.products.images
    later = db.env.clock.trusted_now() + DAY_MS + 60_000

    assert images.uploads.clear_stale(later) >= 1
    repository = asyncio.run(db.read(lambda tx: service.find(tx, org_id, "kept")))
    assert repository is not None
    age_parts(harbor, repository.id)
    asyncio.run(collect(harbor, images.manifests, repository))

    assert harbor.call("GET", place).code == "BLOB_UPLOAD_UNKNOWN"
    assert harbor.call("HEAD", f"kept/blobs/{orphan}").status == 404
    assert harbor.call("HEAD", f"kept/blobs/{digest_of(parts(b'one')[1])}").status == 404
    assert harbor.call("HEAD", f"kept/blobs/{digest_of(parts(b'two')[1])}").status == 200
    assert harbor.call("GET", "kept/manifests/v2").status == 200


def age_parts(harbor: Harbor, repository_id: int) -> None:
    """Make all parts of a repository look as if they were pushed long ago."""
    org_id = harbor.platform.org_id

    def unit(tx: Any) -> None:
        for part in tx.all(tables.PARTS, org_id=org_id, repository_id=repository_id):
            tx.run(tables.USE_PART, org_id=org_id, repository_id=repository_id, digest=part.digest, now=1)

    asyncio.run(harbor.platform.db.write(unit))


async def collect(harbor: Harbor, manifests: Manifests, repository: tables.Repository) -> None:
    db, org_id = harbor.platform.db, harbor.platform.org_id
    known = {}
    for part in await db.read(lambda tx: service.manifests_of(tx, org_id, repository)):
        known[part.digest] = documents.parse(await manifests.read(part), part.media_type)
    await db.write(lambda tx: service.collect(tx, org_id, repository, known))


def test_images_stay_for_a_day_without_their_project(harbor: Harbor) -> None:
    db, org_id = harbor.platform.db, harbor.platform.org_id
    harbor.push("gone")
    token = harbor.tokens[Role.ADMIN]
    deleted = harbor.call("DELETE", "/v1/projects/gone", token=None, Authorization=f"Bearer {token}")
    repository = asyncio.run(db.read(lambda tx: service.find(tx, org_id, "gone")))
    assert repository is not None

    soon = asyncio.run(db.read(lambda tx: deploying.is_used(tx, org_id, repository)))
    later = asyncio.run(db.read(lambda tx: deploying.is_used(tx, org_id, replace(repository, updated_at=1))))

    assert deleted.status == 200
    assert harbor.call("GET", "gone/manifests/latest").status == 200
    assert (soon, later) == (True, False)
    asyncio.run(db.write(lambda tx: service.remove(tx, org_id, repository)))
    assert harbor.call("GET", "gone/manifests/latest").status == 404


def test_a_project_that_a_push_created_gives_way_to_a_client(harbor: Harbor) -> None:
    harbor.push("given")
    before = harbor.project("given")
    body = {"slug": "container", "name": "given", "publicImage": f"localhost:8080/{harbor.slug}/given:latest"}

    made = harbor.call(
        "POST", "/v1/projects", json.dumps(body).encode(), token=None, Content_Type="application/json",
        Authorization=f"Bearer {harbor.token}",
    )  # fmt: skip

    after = harbor.project("given")
    assert made.status == 200, made.body
    assert before is not None
    assert after is not None
    assert before.id != after.id
    assert harbor.call("GET", "given/manifests/latest").status == 200


def test_requests_for_blobs_do_not_count_against_the_rate_limit(tmp_path: Path, sqlite_template: Path) -> None:
    with running_harbor(tmp_path, sqlite_template, rate_limit=5) as strict:
        place = strict.begin("many-layers")
        heads = [strict.call("HEAD", f"many-layers/blobs/{DIGEST}").status for _ in range(8)]
        chunks = [strict.call("PATCH", place, b"x").status for _ in range(8)]
        wrong = [strict.call("HEAD", f"many-layers/blobs/{DIGEST}", token="psk_test_x").status for _ in range(8)]

    assert set(heads) == {404}
    assert set(chunks) == {202}
    assert wrong[0] == 401
    assert wrong[-1] == 429  # Wrong passwords count against the address.


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Harbor]:
    with running_harbor(tmp_path_factory.mktemp("small"), sqlite_template, images_gb=1) as harbor:
        yield harbor


def test_an_organization_has_a_quota(small: Harbor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "GB", 150_000)  # bytes of a "GB"
    small.push_blob("full", BLOB)

    announced = small.call("POST", f"full/blobs/uploads/?digest={digest_of(b'y')}", b"y" * 60_000)
    sent = small.call("PATCH", small.begin("full"), iter([b"z" * 40_000] * 2))
    stored = small.call("PUT", f"{small.begin('full')}?digest={digest_of(b'z' * 60_000)}", iter([b"z" * 60_000]))

    assert (announced.status, announced.code) == (403, "DENIED")
    assert "MOORAGE_IMAGES_GB" in announced.message
    assert sent.status == 202  # It is still open: an upload is checked every few MB, and when it is stored.
    assert (stored.status, stored.code) == (403, "DENIED")


def test_no_upload_begins_on_a_full_disk(tmp_path: Path, sqlite_template: Path) -> None:
    with running_harbor(tmp_path, sqlite_template, disk_reserve_mb=2**30) as full:
        answer = full.call("POST", "full/blobs/uploads/")

    assert (answer.status, answer.code) == (503, "UNAVAILABLE")
