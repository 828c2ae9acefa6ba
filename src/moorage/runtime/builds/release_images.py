"""Images of built folders: the base image of the operator, and one layer each for the release and its runtimes.

A pod sees the files at the paths of the local sandbox, so that a release starts with the same command.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any, cast

from moorage.core.kit.records import dataclass
from moorage.core.net.targets import TargetPolicy
from moorage.runtime.images import references
from moorage.runtime.images.blobs import as_document
from moorage.runtime.images.manifests import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, Descriptor, Manifest
from moorage.runtime.images.pushing.client import PushClient
from moorage.runtime.images.pushing.transfer import ImageParts, Pushed, Transfer, registry_image
from moorage.runtime.images.sign_in import Credentials
from moorage.runtime.images.sources import Sources

APP_USER = 1000  # Pods of built folders run as this user, which may write to its release.
_TRUSTED = TargetPolicy(allow_loopback=True, allow_private=True)


@dataclass(frozen=True, slots=True)
class Layer:
    """A packed folder."""

    digest: str
    diff_id: str  # digest before the compression
    size: int


class ReleaseImages:
    def __init__(self, base: str, sources: Sources, client: PushClient, folder: Path) -> None:
        """`base` is the reference of the base image; `folder` has packed layers, and the digests of earlier ones."""
        self._base = base
        self._client = client
        self._folder = folder
        self._transfer = Transfer(client, folder)
        self._sources = replace(sources, targets=_TRUSTED, credentials=self._find_credentials)
        self._pushed: dict[tuple[int, str], Pushed] = {}
        self._lock = asyncio.Lock()

    async def push(self, org_id: int, digest: str, release: Mapping[str, Path], runtimes: Mapping[str, Path]) -> Pushed:
        """Push the image of a release; `release` and `runtimes` are files by their path in the pod.

        Raises PushFailed and PullFailed. Safe to repeat.
        """
        key = hashlib.sha256(json.dumps([digest, self._base, sorted(map(str, runtimes.items()))]).encode()).hexdigest()
        async with self._lock:
            known = self._pushed.get((org_id, key))
            repository = self._client.repository_of(org_id)
            if known is None or not await self._client.has(repository, "manifests", known.digest):
                known = self._pushed[org_id, key] = await self._push(org_id, digest, release, runtimes)
            return known

    async def _push(
        self, org_id: int, digest: str, release: Mapping[str, Path], runtimes: Mapping[str, Path]
    ) -> Pushed:
        trees: dict[str, tuple[Mapping[str, Path], int]] = {}
        for inside, outside in sorted(runtimes.items()):
            trees[f"{inside}={await asyncio.to_thread(outside.resolve)}"] = ({inside: outside}, 0)
        trees[f"{digest}={','.join(release)}"] = (release, APP_USER)
        repository = self._client.repository_of(org_id)
        layers = {name: await self._layer(repository, name, *tree) for name, tree in trees.items()}
        by_digest = {layer.digest: name for name, layer in layers.items()}
        async with registry_image(self._sources, references.parse(self._base), org_id) as base:

            async def download(part: Descriptor, target: Path) -> None:
                if part.digest not in by_digest:
                    await base.download(part, target)
                    return
                name = by_digest[part.digest]
                if not self._packed(name).exists():
                    await asyncio.to_thread(_pack, self._packed(name), *trees[name])
                await asyncio.to_thread(_move, self._packed(name), target)

            parts = _on_top(base, list(layers.values()))
            pushed = await self._transfer.push(org_id, replace(parts, download=download, origins=self._origins(base)))
        for name in layers:  # of layers that the registry had
            await asyncio.to_thread(self._packed(name).unlink, missing_ok=True)
        return pushed

    def _origins(self, base: ImageParts) -> dict[str, str]:
        """Return the repository of each layer of the base image, if it is at the registry that is pushed to."""
        reference = references.parse(self._base)
        is_here = reference.registry == self._client.host
        return {layer.digest: reference.repository for layer in base.manifest.layers} if is_here else {}

    async def _layer(self, repository: str, name: str, files: Mapping[str, Path], owner: int) -> Layer:
        """Return the digests of a folder, packed unless the registry has it for the organization.

        A folder that is packed again may have another digest: its times, or the caches of a runtime, have changed.
        """
        packed = self._packed(name)
        about = packed.with_suffix(".json")
        if about.exists():
            known = Layer(**json.loads(await asyncio.to_thread(about.read_text)))
            if packed.exists() or await self._client.has(repository, "blobs", known.digest):
                return known
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True, mode=0o700)
        await asyncio.to_thread(about.unlink, missing_ok=True)  # The file and its digests belong together.
        layer = await asyncio.to_thread(_pack, packed, files, owner)
        await asyncio.to_thread(about.write_text, json.dumps(asdict(layer)))
        return layer

    def _packed(self, name: str) -> Path:
        return self._folder / f"layer-{hashlib.sha256(name.encode()).hexdigest()}.gz"

    async def _find_credentials(self, org_id: int, registry: str) -> Credentials | None:
        return self._client.credentials if registry == self._client.host else None


def _on_top(base: ImageParts, layers: list[Layer]) -> ImageParts:
    """Return an image with further layers, whose files are not there yet."""
    config: dict[str, Any] = json.loads(base.config)
    known = config.get("rootfs", {}).get("diff_ids", [])
    config["rootfs"] = {"type": "layers", "diff_ids": [*known, *(layer.diff_id for layer in layers)]}
    config.pop("history", None)
    config["config"] = {**(config.get("config") or {}), "User": str(APP_USER)}
    about = _encode(config)
    manifest = Manifest(
        Descriptor(OCI_CONFIG, _digest(about), len(about)),
        (*base.manifest.layers, *(Descriptor(f"{OCI_LAYER}+gzip", each.digest, each.size) for each in layers)),
    )
    body = _encode(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": as_document(manifest.config),
            "layers": [as_document(layer) for layer in manifest.layers],
        }
    )
    return ImageParts(_digest(body), body, OCI_MANIFEST, manifest, about, base.download)


class _Hashing(io.RawIOBase):
    """Writes to a file, and hashes what is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return self._file.write(data)


def _pack(target: Path, files: Mapping[str, Path], owner: int) -> Layer:
    """Pack folders and files under other paths; all belong to one user."""

    def owned(header: tarfile.TarInfo) -> tarfile.TarInfo:
        header.uid = header.gid = owner
        header.uname = header.gname = ""
        return header

    new = target.with_suffix(".new")
    with new.open("wb") as packed:
        outer = _Hashing(packed)
        with gzip.GzipFile("", "wb", 1, outer, 0) as compressed:
            inner = _Hashing(cast(IO[bytes], compressed))
            with tarfile.open(fileobj=inner, mode="w|", format=tarfile.PAX_FORMAT) as archive:
                for inside, outside in files.items():
                    archive.add(outside.resolve(), inside.lstrip("/"), filter=owned)
    new.rename(target)
    digest, diff_id = (f"sha256:{each.sha256.hexdigest()}" for each in (outer, inner))
    return Layer(digest, diff_id, target.stat().st_size)


def _move(source: Path, target: Path) -> None:
    source.rename(target)


def _digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
