"""Results of a build are files and words of a user's code."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.runtime.builds.build_support import make_request
from tests.runtime.builds.pods.conftest import ORG, Repository

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.store import Database
from moorage.runtime.builds.collect import APP_CAPS
from moorage.runtime.builds.pods.results import INVALID, Results, merge_plans
from moorage.runtime.builds.pods.session import Session
from moorage.runtime.builds.pods.wire import PACKAGE, Event, Part
from moorage.runtime.builds.ports import CHOSEN_BY_ENGINE, BuildFailed, ImageSettings, Plan, StoredBuild
from moorage.runtime.images.blobs import ImageBlobs

pytestmark = pytest.mark.anyio

OWN = Plan("container", "nodejs", start="node .", base="apps", workdir="web")
IMAGE = Plan("container", "docker")
DIGEST = "sha256:" + "0" * 64


class Pod:
    """Hands out parts as the session of a pod does."""

    def __init__(self, **parts: bytes) -> None:
        self.parts = {name.replace("_", ":"): body for name, body in parts.items()}
        self.fetched: list[str] = []

    async def fetch(self, part: Part, target: Path) -> str:
        self.fetched.append(part.name)
        target.write_bytes(self.parts[part.name])
        return hashlib.sha256(self.parts[part.name]).hexdigest()


def packed(*names: str) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name in names:
            archive.writestr(name, "text")
    return body.getvalue()


def part(name: str, body: bytes) -> Part:
    return Part(name, len(body))


async def take(db: Database, folder: Path, pod: Pod, own: Plan, last: Event) -> StoredBuild:
    folder.mkdir(exist_ok=True)
    releases = Unpacked(folder / "releases", APP_CAPS, is_used=lambda tx, digest: True)
    results = Results(db, ArtifactStore(db), lambda _: releases)
    request = make_request(CHOSEN_BY_ENGINE, image=ImageSettings(org_id=ORG, owner="deployment:17"))
    return await results.take(request, own, Repository(folder), cast(Session, pod), last, folder)


@pytest.mark.boundary("code-to-host", "A build in a pod cannot name folders outside of its own release.")
@pytest.mark.parametrize(
    "claim",
    [
        {"output_dir": "../secrets"},
        {"output_dir": "/etc"},
        {"node": "../../etc"},
        {"image": DIGEST},
        {"image": "latest"},
    ],
)
def test_a_plan_that_no_build_makes_is_refused(claim: dict[str, Any]) -> None:
    with pytest.raises(BuildFailed, match=INVALID):
        merge_plans(OWN, replace(OWN, **claim))


def test_a_pod_cannot_change_the_plan_of_the_platform() -> None:
    said = Plan("static", "python", start="evil", base="../x", workdir="/", node="20.1.0", output_dir="dist")

    assert merge_plans(OWN, said) == replace(OWN, node="20.1.0", output_dir="dist")


def test_a_dockerfile_has_to_become_an_image() -> None:
    with pytest.raises(BuildFailed, match=INVALID):
        merge_plans(IMAGE, IMAGE)
    assert merge_plans(IMAGE, replace(IMAGE, image=DIGEST)).image == DIGEST


@pytest.mark.boundary("code-to-host", "An archive of a build is read as strictly as an upload.")
async def test_an_archive_with_names_outside_of_it_is_refused(db: Database, tmp_path: Path) -> None:
    body = packed("../outside.txt")

    with pytest.raises(BuildFailed, match=f"{INVALID}: "):
        await take(
            db, tmp_path / "scratch", Pod(package=body), OWN, Event(1, plan=OWN, files=1, parts=[part(PACKAGE, body)])
        )
    assert not (tmp_path / "outside.txt").exists()


async def test_parts_of_the_wrong_kind_number_or_size_are_refused(db: Database, tmp_path: Path) -> None:
    image = replace(IMAGE, image=DIGEST)
    claims = [
        (OWN, Event(1, plan=OWN, parts=[])),
        (OWN, Event(1, plan=OWN, parts=[Part(PACKAGE, 2**60)])),
        (IMAGE, Event(1, plan=image, parts=[Part(PACKAGE, 3)])),
        (IMAGE, Event(1, plan=image, parts=[Part(DIGEST, 3), Part("../x", 3)])),
        (IMAGE, Event(1, plan=image, parts=[Part(DIGEST, 3), Part("sha256:" + "1" * 64, 2**60)])),
    ]
    for own, last in claims:
        with pytest.raises(BuildFailed, match=INVALID):
            await take(db, tmp_path / "scratch", Pod(), own, last)


async def test_a_part_that_is_not_its_digest_is_refused(db: Database, tmp_path: Path) -> None:
    other = "sha256:" + "1" * 64
    pod = Pod(**{other.replace(":", "_"): b"abc"})
    last = Event(1, plan=replace(IMAGE, image=DIGEST), parts=[Part(other, 3), Part(DIGEST, 3)])

    with pytest.raises(BuildFailed, match=INVALID):
        await take(db, tmp_path / "scratch", pod, IMAGE, last)


async def test_parts_that_the_organization_has_are_not_transferred_again(db: Database, tmp_path: Path) -> None:
    layer, config = b"layer", b"{}"
    names = {body: f"sha256:{hashlib.sha256(body).hexdigest()}" for body in (layer, config)}
    document = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _described("application/vnd.oci.image.config.v1+json", config),
        "layers": [_described("application/vnd.oci.image.layer.v1.tar", layer)],
    }
    manifest = json.dumps(document).encode()
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    bodies = {**{name.replace(":", "_"): body for body, name in names.items()}, digest.replace(":", "_"): manifest}
    parts = [part(names[layer], layer), part(names[config], config), part(digest, manifest)]
    last = Event(1, plan=replace(IMAGE, image=digest), parts=parts)
    first, second = Pod(**bodies), Pod(**bodies)

    built = await take(db, tmp_path / "scratch", first, IMAGE, last)
    await take(db, tmp_path / "scratch", second, IMAGE, last)

    assert built.digest == digest.removeprefix("sha256:")
    assert first.fetched == [names[layer], names[config], digest]
    assert second.fetched == [digest]
    assert await ImageBlobs(db, ArtifactStore(db)).has(ORG, names[layer])


def _described(media_type: str, body: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{hashlib.sha256(body).hexdigest()}", "size": len(body)}
