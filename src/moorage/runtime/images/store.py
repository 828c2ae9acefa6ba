"""Store of unpacked images, shared by all organizations.

    images/<digest>/root/         files of the image, with its owners if the platform is root
    images/<digest>/image.json    start configuration and size; touched at each use
    images/<digest>/users/<id>    marks use by an organization; touched at each use by it
    images/incoming/              pulls in progress, and images being removed

The digest is that of the manifest for this machine. Images are built and removed in `incoming` and renamed, so that no
incomplete image has its final name.

An image that was pulled with credentials, built or pushed is private: `origins` in its `image.json` lists the
repositories and organizations that it came from. An organization uses it only after one of these repositories gave it
the manifest, with its own credentials; from elsewhere it downloads all layers, as if the image was not stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import asdict, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from moorage.core.kit import folders
from moorage.core.kit.clock import DAY_MS, Clock
from moorage.core.kit.records import dataclass
from moorage.core.net.targets import TargetPolicy
from moorage.runtime.images import layers, linking, machine, manifests, partial_files
from moorage.runtime.images import registry as images_registry
from moorage.runtime.images.blobs import ImageBlobs
from moorage.runtime.images.building.files.layer_folders import LayerFolders
from moorage.runtime.images.references import PullFailed, Reference, is_digest
from moorage.runtime.images.sizes import GB, MAX_ENTRIES, MAX_UNPACKED_BYTES, MB, size_text
from moorage.runtime.images.sources import Source, Sources

MAX_CONFIG_BYTES = 8 * MB
MIN_FREE_INODES = 10_000  # that a pull leaves free, on file systems with a fixed number

# Exclude the removal of an image during `_use_stored`, also by another instance with the same folder.
_LOCKS: dict[Path, threading.Lock] = {}

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Image:
    digest: str
    root: Path
    config: manifests.ImageConfig
    disk_bytes: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Resources of the machine that images may use."""

    packed_bytes: int = 4 * GB  # all compressed layers of an image
    unpacked_bytes: int = MAX_UNPACKED_BYTES
    entries: int = MAX_ENTRIES
    pull_s: float = 1800
    pulls: int = 3  # concurrent; others wait
    reserve_bytes: int = GB  # disk space that a pull leaves free
    organization_bytes: int = 20 * GB  # of all images that an organization used within a day
    organization_entries: int = 1_000_000


@dataclass(frozen=True, slots=True)
class _Resolved:
    """Digest of a resolved reference, with the manifest if already received."""

    digest: str
    manifest: manifests.Manifest | None
    is_private: bool  # resolved with credentials


@dataclass(frozen=True, slots=True)
class _Parts:
    """Manifest of an image, and access to its configuration and layers."""

    manifest: manifests.Manifest
    read: Callable[[manifests.Descriptor], Awaitable[bytes]]
    download: Callable[[manifests.Descriptor, Path], Awaitable[None]]
    is_stored: bool = False  # The organization has all of them in its artifact store.


_Source = Callable[[], contextlib.AbstractAsyncContextManager[_Parts]]


@dataclass(slots=True)
class _SharedPull:
    """A pull with several waiting callers; cancelled when the last one is."""

    task: asyncio.Task[Image] | None = None
    listeners: list[Progress] = field(default_factory=list)

    def progress(self, line: str) -> None:
        for listener in tuple(self.listeners):
            listener(line)


class Images:
    """All images of this machine; `find` and `collect` are thread-safe."""

    def __init__(
        self,
        folder: Path,
        targets: TargetPolicy,
        clock: Clock,
        *,
        limits: Limits | None = None,
        transfer: images_registry.PullSettings | None = None,
        architecture: str | None = None,
        sources: Sources | None = None,
        blobs: ImageBlobs | None = None,
        layer_folders: LayerFolders | None = None,
    ) -> None:
        """`blobs` has the images that were built or pushed here, `layer_folders` layers of builds on this machine."""
        self._folder = folder.absolute()
        self._incoming = self._folder / "incoming"
        self._clock = clock
        self._limits = limits or Limits()
        self._sources = sources or Sources(targets, transfer or images_registry.PullSettings())
        self._architecture = architecture or machine.architecture()
        self._blobs = blobs
        self._layer_folders = layer_folders
        self._slots = asyncio.Semaphore(self._limits.pulls)
        self._shared_pulls: dict[str, _SharedPull] = {}
        self._lock = _LOCKS.setdefault(self._folder, threading.Lock())

    def find(self, digest: str) -> Image | None:
        if not is_digest(digest):
            return None
        try:
            stored = json.loads(self._image_file(digest).read_bytes())
        except FileNotFoundError:
            return None
        size = (stored.get("diskBytes", 0), stored.get("entries", 0))
        return Image(digest, self._image_folder(digest) / "root", manifests.read_config(stored["config"]), *size)

    async def pull(self, reference: Reference, progress: Progress, org_id: int | None = None) -> Image:
        """Return the image, downloaded if necessary; raises PullFailed.

        The image counts against the organization's budget, even if other organizations use it too. A tag is resolved
        at the registry each time; if that fails, the pull fails although an older image of the tag may be stored.
        """
        try:
            async with asyncio.timeout(self._limits.pull_s):
                return await self._pull(reference, progress, org_id)
        except TimeoutError:
            why = f"it took longer than {self._limits.pull_s / 60:g} minutes"
        except PullFailed as error:
            why = str(error)
        except OSError as error:
            why = f"it cannot be stored: {error.strerror or 'the disk failed'}"
        raise PullFailed(f"cannot pull {reference}: {why}") from None

    async def ensure(self, org_id: int, digest: str, progress: Progress = lambda _: None) -> Image:
        """Return an image of the artifact store, unpacked if this machine does not have it; raises PullFailed."""
        if self._blobs is None or not await self._blobs.has(org_id, digest):
            raise PullFailed(f"the image {digest[:80]} is not stored here")
        origin = f"organization {org_id}"
        # A running release must be able to start again, even if the organization is over its budget of images.
        known = await asyncio.to_thread(self._use_stored, digest, org_id, origin, is_bounded=False)
        if known is not None:
            return known
        source = partial(_stored_parts, self._blobs, org_id, digest)
        fetch = partial(self._fetch, digest, digest, source, org_id=org_id, origin=origin, is_private=True)
        try:
            async with asyncio.timeout(self._limits.pull_s):
                return await self._share(f"{org_id}:{digest}", progress, fetch)
        except TimeoutError:
            raise PullFailed("the image could not be unpacked in time") from None
        except OSError as error:
            raise PullFailed(f"the image cannot be unpacked: {error.strerror or 'the disk failed'}") from None

    def collect(self, keep: set[str], now: int) -> int:
        """Remove images not in `keep` and unused for a day; return their count."""
        self._clear_incoming(now)
        gone = [digest for digest in self.stored() if digest not in keep and self._remove_unused(digest, now - DAY_MS)]
        return len(gone)

    async def _pull(self, reference: Reference, progress: Progress, org_id: int | None) -> Image:
        known = await asyncio.to_thread(self._use_stored, reference.digest, org_id) if reference.digest else None
        if known is None:
            resolved = await self._resolve(reference, org_id)
            known = await asyncio.to_thread(self._use_stored, resolved.digest, org_id, _origin(reference))
            if known is None:
                # Pulls are shared within an organization only: the budget of one must not end the pull of another.
                source = partial(self._registry_parts, reference, resolved, org_id)
                fetch = partial(
                    self._fetch,
                    resolved.digest,
                    str(reference),
                    source,
                    org_id=org_id,
                    origin=_origin(reference),
                    is_private=resolved.is_private,
                )
                return await self._share(f"{org_id}:{resolved.digest}", progress, fetch)
        progress(f"Image {reference} is here: {known.digest}")
        return known

    def _remaining_budget(self, org_id: int | None, digest: str) -> tuple[int, int]:
        """Return an organization's unused bytes and files, not counting one image."""
        left_bytes, left_entries = self._limits.organization_bytes, self._limits.organization_entries
        if org_id is None:
            return left_bytes, left_entries
        since = self._clock.now() - DAY_MS
        for other in self.stored():
            if other != digest and _mtime_ms(self._usage_file(other, org_id)) > since and (image := self.find(other)):
                left_bytes -= image.disk_bytes
                left_entries -= image.entries
        return max(left_bytes, 0), max(left_entries, 0)

    def _over_budget(self) -> PullFailed:
        most_bytes, most_entries = self._limits.organization_bytes, self._limits.organization_entries
        return PullFailed(
            f"the images that this organization has used within a day would take more than {size_text(most_bytes)} "
            f"or {most_entries:,} files (MOORAGE_IMAGES_GB, MOORAGE_IMAGE_FILES)"
        )

    async def _resolve(self, reference: Reference, org_id: int | None) -> _Resolved:
        async with self._sources.open(reference, org_id) as source:
            digest, document = await source.manifest(reference.wanted)
        if isinstance(document, manifests.Index):
            return _Resolved(document.choose(self._architecture).digest, None, source.is_private)
        return _Resolved(digest, document, source.is_private)

    async def _share(
        self, key: str, progress: Progress, fetch: Callable[[Progress], Coroutine[Any, Any, Image]]
    ) -> Image:
        """Join the pull in progress with this key, or start it."""
        pull = self._shared_pulls.setdefault(key, _SharedPull())
        pull.listeners.append(progress)
        if pull.task is None:
            pull.task = asyncio.create_task(fetch(pull.progress))
        else:
            progress("The same image is being pulled already: waiting for it")
        try:
            return await asyncio.shield(pull.task)
        finally:
            pull.listeners.remove(progress)
            if pull.task.done() or not pull.listeners:
                pull.task.cancel()
                if self._shared_pulls.get(key) is pull:
                    del self._shared_pulls[key]

    async def _fetch(
        self,
        digest: str,
        name: str,
        source: _Source,
        progress: Progress,
        *,
        org_id: int | None,
        origin: str,
        is_private: bool,
    ) -> Image:
        async with self._slots:
            self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
            work = Path(tempfile.mkdtemp(dir=self._incoming, prefix="pull-"))
            try:
                budget = await asyncio.to_thread(self._remaining_budget, org_id, digest)
                async with source() as parts:
                    config, size = await self._fill(work, parts, progress, budget, f"{org_id or 0}")
                (work / "users").mkdir()
                layers_of_image = [layer.digest for layer in parts.manifest.layers]
                note = {"digest": digest, "reference": name, "config": asdict(config), "layers": layers_of_image}
                access = {"origins": [origin]} if is_private else {}
                (work / "image.json").write_text(
                    json.dumps({**note, **access, "diskBytes": size[0], "entries": size[1]})
                )
                await asyncio.to_thread(self._publish, work, digest, origin)
            finally:
                await asyncio.to_thread(folders.remove, work)
        image = await asyncio.to_thread(self._use_stored, digest, org_id, origin)
        if image is None:
            raise PullFailed("it was removed right after the pull")
        progress(f"Pulled {name}: {digest}" if name != digest else f"Unpacked {digest}")
        return image

    @contextlib.asynccontextmanager
    async def _registry_parts(
        self, reference: Reference, resolved: _Resolved, org_id: int | None
    ) -> AsyncIterator[_Parts]:
        async with self._sources.open(reference, org_id) as source:
            manifest = resolved.manifest or await _manifest(source, resolved.digest)
            yield _Parts(
                manifest,
                partial(source.read, max_bytes=MAX_CONFIG_BYTES),
                partial(self._download, source, org_id),
            )

    async def _download(self, source: Source, org_id: int | None, part: manifests.Descriptor, target: Path) -> None:
        """Write a layer to a file, from the artifact store if the organization has it there."""
        if self._blobs is not None and org_id is not None and await self._blobs.has(org_id, part.digest):
            await self._blobs.fetch(org_id, part.digest, target)
        else:
            await source.download(part, target)

    async def _fill(
        self, work: Path, parts: _Parts, progress: Progress, budget: tuple[int, int], owner: str
    ) -> tuple[manifests.ImageConfig, tuple[int, int]]:
        """Download and unpack the image; return configuration and (bytes, files)."""
        manifest = parts.manifest
        if manifest.packed_bytes > self._limits.packed_bytes:
            raise manifests.BadImage(
                f"the image has {size_text(manifest.packed_bytes)} of layers; "
                f"{size_text(self._limits.packed_bytes)} are allowed"
            )
        config = manifests.parse_config(await parts.read(manifest.config), self._architecture)
        return config, await self._unpack(work, parts, progress, budget, owner)

    async def _unpack(
        self, work: Path, parts: _Parts, progress: Progress, budget: tuple[int, int], owner: str
    ) -> tuple[int, int]:
        """Download and apply layers one by one: only one is stored compressed."""
        root = work / "root"
        root.mkdir()
        root.chmod(0o755)
        limits = self._limits
        most_bytes, most_entries = min(limits.unpacked_bytes, budget[0]), min(limits.entries, budget[1])
        unpacker = layers.Unpacker(root, most_bytes=most_bytes, most_entries=most_entries, check_room=self._check_room)
        try:
            await self._apply_layers(unpacker, parts, progress, owner)
        except layers.TooLarge:
            if (most_bytes, most_entries) != (limits.unpacked_bytes, limits.entries):
                raise self._over_budget() from None
            raise
        if unpacker.skipped:
            progress(f"Skipped {unpacker.skipped} devices and other special files")
        return await asyncio.to_thread(layers.size_of, root)

    async def _apply_layers(self, unpacker: layers.Unpacker, parts: _Parts, progress: Progress, owner: str) -> None:
        wanted = parts.manifest.layers
        linked = 0
        if parts.is_stored:  # The organization has all layers, so it may use files of other images with the same ones.
            known, digests = self._unpacked_layers(), [layer.digest for layer in wanted]
            link = partial(linking.link_layers, unpacker, digests, known, self._layer_folders)
            linked = await asyncio.to_thread(link)
            if linked:
                progress(f"Layers 1 to {linked} of {len(wanted)} are here")
        for number, layer in enumerate(wanted[linked:], linked + 1):
            progress(f"Layer {number} of {len(wanted)}: {size_text(layer.size)}")
            self._check_room(layer.size)
            with partial_files.held(self._incoming, owner, layer.digest) as blob:
                await parts.download(layer, blob)
                try:
                    await layers.apply_in_thread(unpacker, blob)
                finally:
                    blob.unlink()

    def _unpacked_layers(self) -> list[tuple[list[str], Path]]:
        """Return the layers and roots of all images that are unpacked here."""
        images = []
        for digest in self.stored():
            with contextlib.suppress(FileNotFoundError):
                note = json.loads(self._image_file(digest).read_bytes())
                images.append((note.get("layers") or [], self._image_folder(digest) / "root"))
        return images

    def _check_room(self, more_bytes: int = 0) -> None:
        """Raise PullFailed if less than the reserve would stay free."""
        disk = os.statvfs(self._folder)
        has_inodes = not disk.f_files or disk.f_favail >= min(MIN_FREE_INODES, disk.f_files // 10)
        if disk.f_bavail * disk.f_frsize - more_bytes < self._limits.reserve_bytes or not has_inodes:
            raise PullFailed("the platform's disk is almost full")

    def _publish(self, work: Path, digest: str, origin: str) -> None:
        os.sync()  # After a power failure the final name must not exist without its files.
        work.chmod(0o700)  # The files have owners and modes of the image.
        try:
            work.rename(self._image_folder(digest))
        except OSError:
            if self.find(digest) is None:  # Else another organization's pull has stored the same image.
                raise
            with self._lock:
                self._add_origin(digest, origin)

    def _origins(self, digest: str) -> list[str] | None:
        """Return the repositories that a private image was pulled from; None for a public one."""
        origins: list[str] | None = json.loads(self._image_file(digest).read_bytes()).get("origins")
        return origins

    def _add_origin(self, digest: str, origin: str) -> None:
        """Record that all layers of a private image were downloaded from a further repository."""
        origins = self._origins(digest)
        if origins is not None and origin not in origins:
            self._change_note(digest, {"origins": [*origins, origin]})

    def _use_stored(
        self, digest: str, org_id: int | None = None, origin: str | None = None, *, is_bounded: bool = True
    ) -> Image | None:
        """Return a stored image and record its use; raises PullFailed over budget, if it is bounded.

        `origin` is the repository that just gave this organization the manifest. None without one: then private
        images are not found.
        """
        with self._lock:
            image = self.find(digest)
            if image is None:
                return None
            origins = self._origins(digest)
            if origins is not None and origin not in origins:
                return None
            if not image.entries:
                image = self._measure(image)
            left_bytes, left_entries = self._remaining_budget(org_id, digest)
            if is_bounded and (image.disk_bytes > left_bytes or image.entries > left_entries):
                raise self._over_budget()
            files = [self._image_file(digest), *([self._usage_file(digest, org_id)] if org_id is not None else [])]
            moment_ns = self._clock.now() * 1_000_000
            for file in files:
                file.parent.mkdir(exist_ok=True)
                file.touch()
                os.utime(file, ns=(moment_ns, moment_ns))
            return image

    def _measure(self, image: Image) -> Image:
        """Store the size of an image of a release that did not record sizes."""
        disk_bytes, entries = layers.size_of(image.root)
        self._change_note(image.digest, {"diskBytes": disk_bytes, "entries": entries})
        return replace(image, disk_bytes=disk_bytes, entries=entries)

    def _change_note(self, digest: str, changes: dict[str, Any]) -> None:
        path = self._image_file(digest)
        stored = {**json.loads(path.read_bytes()), **changes}
        new = path.with_suffix(".new")
        new.write_text(json.dumps(stored))
        new.rename(path)

    def stored(self) -> list[str]:
        """Return the digests of all unpacked images."""
        names = os.listdir(self._folder) if self._folder.is_dir() else []
        return [digest for digest in (f"sha256:{name}" for name in names) if is_digest(digest)]

    def _remove_unused(self, digest: str, unused_since: int) -> bool:
        self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        gone = self._incoming / f"gone-{secrets.token_hex(8)}"
        with self._lock:
            if _mtime_ms(self._image_file(digest)) > unused_since:
                return False
            self._image_folder(digest).rename(gone)
        folders.remove(gone)
        return True

    def _clear_incoming(self, now: int) -> None:
        for folder in self._incoming.glob("*"):
            if _mtime_ms(folder) <= now - DAY_MS:
                folders.remove(folder)

    def _image_folder(self, digest: str) -> Path:
        return self._folder / digest.removeprefix("sha256:")

    def _usage_file(self, digest: str, org_id: int) -> Path:
        return self._image_folder(digest) / "users" / str(org_id)

    def _image_file(self, digest: str) -> Path:
        return self._image_folder(digest) / "image.json"


def _origin(reference: Reference) -> str:
    return f"{reference.registry}/{reference.repository}"


@contextlib.asynccontextmanager
async def _stored_parts(blobs: ImageBlobs, org_id: int, digest: str) -> AsyncIterator[_Parts]:
    async def read(part: manifests.Descriptor) -> bytes:
        return await blobs.read(org_id, part.digest)

    async def download(part: manifests.Descriptor, target: Path) -> None:
        await blobs.fetch(org_id, part.digest, target)

    yield _Parts(await blobs.manifest(org_id, digest), read, download, is_stored=True)


async def _manifest(source: Source, digest: str) -> manifests.Manifest:
    _, manifest = await source.manifest(digest)
    if isinstance(manifest, manifests.Index):
        raise manifests.BadImage("the image's index refers to another index")
    return manifest


def _mtime_ms(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
