"""Links in an OCI layout folder: only blobs of the image are sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.products.images.image_pushes import image, parts, write_layout
from tests.runtime.images.registry_support import digest_of

from moorage.cli.images.layouts import Folder, Layout, NotAnImage

MANIFEST = digest_of(json.dumps(image(b"hello")).encode())
LAYER = digest_of(parts(b"hello")[1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_layout(tmp_path / "layout")


def blob_of(folder: Path, digest: str) -> Path:
    return folder / "blobs" / "sha256" / digest.removeprefix("sha256:")


@pytest.mark.boundary("stranger-to-user", "A link in an OCI layout folder sends no file from outside of it.")
def test_a_link_to_another_file_is_refused(folder: Path, tmp_path: Path) -> None:
    private = tmp_path / "private.json"
    private.write_text('{"manifests": [], "token": "private"}')
    for digest in (MANIFEST, LAYER):
        blob_of(folder, digest).unlink()
        blob_of(folder, digest).symlink_to(private)
    layout = Layout(Folder(folder))

    for read in (layout.document, layout.open):
        with pytest.raises(NotAnImage, match="another digest"):
            read(MANIFEST)
    with pytest.raises(NotAnImage, match="another digest"):
        layout.open(LAYER)


def test_a_blob_of_a_shared_store_is_sent(folder: Path, tmp_path: Path) -> None:
    blob = blob_of(folder, LAYER)
    blob.rename(tmp_path / "shared")
    blob.symlink_to(tmp_path / "shared")

    with Layout(Folder(folder)).open(LAYER) as file:
        assert digest_of(file.read()) == LAYER


@pytest.mark.parametrize("digest", ["sha256:../../../private", f"x:{'a' * 64}", "None", "sha256:A"])
def test_a_digest_that_could_be_another_path_is_refused(folder: Path, digest: str) -> None:
    (folder.parent / "private").write_text("key")

    with pytest.raises(NotAnImage, match="no SHA-256 digest"):
        Layout(Folder(folder)).size(digest)
