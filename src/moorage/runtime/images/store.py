"""The images that are here, each unpacked once, whoever runs it.

    images/<digest>/root/         the image's files; read by all, changed by nobody
    images/<digest>/image.json    how it is started, and its size; touched whenever it is asked for
    images/<digest>/users/<id>    an organization that uses it; touched whenever the organization asks for it
    images/incoming/              pulls that are under way, and what is being removed

The digest is that of the manifest for this machine, so what is found under it is what the registry would send again.
An image is made and removed under another name and renamed, so that there is never half of one at its place.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import secrets
import tempfile
import threading
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from moorage.core.kit import folders
from moorage.core.kit.clock import DAY_MS, Clock
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import TargetPolicy
from moorage.runtime.images import layers
from moorage.runtime.images.layers import GB, MB, TooLarge, Unpacker, size_text
from moorage.runtime.images.manifests import BadImage, ImageConfig, Index, Manifest, parse_config
from moorage.runtime.images.references import PullFailed, Reference, is_digest
from moorage.runtime.images.registry import Registry, Terms

MOST_CONFIG_BYTES = 8 * MB
LEAST_INODES = 10_000  # that a pull leaves free, on file systems that have a fixed number
_ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Image:
    digest: str
    root: Path
    config: ImageConfig
    disk_bytes: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of this machine an image may take."""

    packed_bytes: int = 4 * GB  # all layers as they are fetched
    unpacked_bytes: int = layers.MOST_UNPACKED
    entries: int = layers.MOST_ENTRIES
    pull_s: float = 1800
    pulls: int = 3  # at once; others wait
    reserve_bytes: int = GB  # free disk space that a pull leaves
    organization_bytes: int = 20 * GB  # all images that an organization has asked for within a day
    organization_entries: int = 1_000_000


@dataclass(frozen=True, slots=True)
class _Found:
    """What a reference stands for at this moment. The manifest is there where the registry has sent it already."""

    digest: str
    manifest: Manifest | None


@dataclass(slots=True)
class _Flight:
    """A pull that several may wait for: each hears how it goes, and the last one that leaves ends it."""

    task: asyncio.Task[Image] | None = None
    listeners: list[Say] = field(default_factory=list)

    def say(self, line: str) -> None:
        for listener in tuple(self.listeners):
            listener(line)


class Images:
    """All images of this machine. For one process and one event loop; `find` and `collect` also for its threads."""

    def __init__(
        self,
        folder: Path,
        targets: TargetPolicy,
        clock: Clock,
        *,
        limits: Limits | None = None,
        terms: Terms | None = None,
        architecture: str | None = None,
    ) -> None:
        self._folder = folder.absolute()
        self._incoming = self._folder / "incoming"
        self._targets = targets
        self._clock = clock
        self._limits = limits or Limits()
        self._terms = terms or Terms()
        self._architecture = architecture or _ARCHITECTURES.get(platform.machine(), platform.machine())
        self._slots = asyncio.Semaphore(self._limits.pulls)
        self._flights: dict[str, _Flight] = {}
        self._lock = threading.Lock()  # between using an image and removing it

    def find(self, digest: str) -> Image | None:
        if not is_digest(digest):
            return None
        try:
            stored = json.loads(self._note(digest).read_bytes())
        except FileNotFoundError:
            return None
        size = (stored.get("diskBytes", 0), stored.get("entries", 0))
        return Image(digest, self._place(digest) / "root", _config(stored["config"]), *size)

    async def pull(self, reference: Reference, say: Say, org_id: int | None = None) -> Image:
        """Return the image, fetched if it is not here yet; raises PullFailed with a sentence.

        It counts against the budget of the organization, also where another one uses it too.

        A tag is looked up at the registry each time. Where that cannot be done it is an error, although an older image
        may be here: what a tag stood for yesterday is not what was asked for.
        """
        try:
            async with asyncio.timeout(self._limits.pull_s):
                return await self._pull(reference, say, org_id)
        except TimeoutError:
            why = f"it took longer than {self._limits.pull_s / 60:g} minutes"
        except PullFailed as error:
            why = str(error)
        except OSError as error:
            why = f"it cannot be stored: {error.strerror or 'the disk failed'}"
        raise PullFailed(f"cannot pull {reference}: {why}") from None

    def collect(self, keep: set[str], now: int) -> int:
        """Remove the images that are not to be kept and that nobody asked for in the last day; return how many."""
        self._clear_incoming(now)
        gone = [digest for digest in self._digests() if digest not in keep and self._take_away(digest, now - DAY_MS)]
        return len(gone)

    async def _pull(self, reference: Reference, say: Say, org_id: int | None) -> Image:
        known = await asyncio.to_thread(self._use, reference.digest, org_id) if reference.digest else None
        if known is None:
            found = await self._resolve(reference)
            known = await asyncio.to_thread(self._use, found.digest, org_id)
            if known is None:
                # Each organization pulls by itself: the budget of one must not end the pull of another.
                fetch = partial(self._fetch, reference, found, org_id=org_id)
                return await self._together(f"{org_id}:{found.digest}", say, fetch)
        say(f"Image {reference} is here: {known.digest}")
        return known

    def _left(self, org_id: int | None, digest: str) -> tuple[int, int]:
        """Return how many bytes and files an organization may still have, without one image."""
        left_bytes, left_entries = self._limits.organization_bytes, self._limits.organization_entries
        if org_id is None:
            return left_bytes, left_entries
        since = self._clock.now() - DAY_MS
        for other in self._digests():
            if other != digest and _moment_ms(self._mark(other, org_id)) > since and (image := self.find(other)):
                left_bytes -= image.disk_bytes
                left_entries -= image.entries
        return max(left_bytes, 0), max(left_entries, 0)

    def _over_budget(self) -> PullFailed:
        most_bytes, most_entries = self._limits.organization_bytes, self._limits.organization_entries
        return PullFailed(
            f"the images that this organization has used within a day would take more than {size_text(most_bytes)} "
            f"or {most_entries:,} files (MOORAGE_IMAGES_GB, MOORAGE_IMAGE_FILES)"
        )

    async def _resolve(self, reference: Reference) -> _Found:
        async with self._client() as client:
            registry = self._registry(client, reference)
            digest, found = await registry.manifest(reference.wanted)
        if isinstance(found, Index):
            return _Found(found.choose(self._architecture).digest, None)
        return _Found(digest, found)

    async def _together(self, key: str, say: Say, fetch: Callable[[Say], Coroutine[Any, Any, Image]]) -> Image:
        """Wait for the same pull that is under way, or begin it."""
        flight = self._flights.setdefault(key, _Flight())
        flight.listeners.append(say)
        if flight.task is None:
            flight.task = asyncio.create_task(fetch(flight.say))
        else:
            say("The same image is being pulled already: waiting for it")
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.listeners.remove(say)
            if flight.task.done() or not flight.listeners:
                flight.task.cancel()
                if self._flights.get(key) is flight:
                    del self._flights[key]

    async def _fetch(self, reference: Reference, found: _Found, say: Say, *, org_id: int | None) -> Image:
        async with self._slots:
            self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
            work = Path(tempfile.mkdtemp(dir=self._incoming, prefix="pull-"))
            try:
                left = await asyncio.to_thread(self._left, org_id, found.digest)
                config, size = await self._fill(work, reference, found, say, left)
                (work / "users").mkdir()
                note = {"digest": found.digest, "reference": str(reference), "config": asdict(config)}
                (work / "image.json").write_text(json.dumps({**note, "diskBytes": size[0], "entries": size[1]}))
                await asyncio.to_thread(self._settle, work, found.digest)
            finally:
                await asyncio.to_thread(folders.remove, work)
        image = await asyncio.to_thread(self._use, found.digest, org_id)
        if image is None:
            raise PullFailed("it was removed again at once")
        say(f"Pulled {reference}: {found.digest}")
        return image

    async def _fill(
        self, work: Path, reference: Reference, found: _Found, say: Say, left: tuple[int, int]
    ) -> tuple[ImageConfig, tuple[int, int]]:
        """Put the image into a folder; return how it is started, and what it takes: bytes and files."""
        async with self._client() as client:
            registry = self._registry(client, reference)
            manifest = found.manifest or await _manifest(registry, found.digest)
            if manifest.packed_bytes > self._limits.packed_bytes:
                raise BadImage(
                    f"the image has {size_text(manifest.packed_bytes)} of layers; "
                    f"{size_text(self._limits.packed_bytes)} are allowed"
                )
            config = parse_config(await registry.read(manifest.config, MOST_CONFIG_BYTES), self._architecture)
            size = await self._unpack(work, registry, manifest, say, left)
        return config, size

    async def _unpack(
        self, work: Path, registry: Registry, manifest: Manifest, say: Say, left: tuple[int, int]
    ) -> tuple[int, int]:
        """Fetch and apply one layer after the other, so that no more than one lies there packed."""
        stop, root, blob = threading.Event(), work / "root", work / "layer"
        root.mkdir()
        root.chmod(0o755)
        limits = self._limits
        most_bytes, most_entries = min(limits.unpacked_bytes, left[0]), min(limits.entries, left[1])
        unpacker = Unpacker(
            root, most_bytes=most_bytes, most_entries=most_entries, check_room=self._check_room, stop=stop
        )
        for number, layer in enumerate(manifest.layers, 1):
            say(f"Layer {number} of {len(manifest.layers)}: {size_text(layer.size)}")
            self._check_room(layer.size)
            await registry.download(layer, blob)
            try:
                await _in_thread(partial(unpacker.apply, blob), stop)
            except TooLarge:
                if (most_bytes, most_entries) != (limits.unpacked_bytes, limits.entries):
                    raise self._over_budget() from None
                raise
            blob.unlink()
        if unpacker.skipped:
            say(f"Left out {unpacker.skipped} devices and the like")
        return await asyncio.to_thread(_size_of, root)

    def _check_room(self, more_bytes: int = 0) -> None:
        """Raise PullFailed where less than the reserve would be free; called every few megabytes of a layer."""
        found = os.statvfs(self._folder)
        has_inodes = not found.f_files or found.f_favail >= min(LEAST_INODES, found.f_files // 10)
        if found.f_bavail * found.f_frsize - more_bytes < self._limits.reserve_bytes or not has_inodes:
            raise PullFailed("the platform's disk is almost full")

    def _settle(self, work: Path, digest: str) -> None:
        os.sync()  # The name must not outlive a power cut that the files do not.
        work.chmod(0o755)
        try:
            work.rename(self._place(digest))
        except OSError:
            if self.find(digest) is None:  # Else it came meanwhile: the same files, under the same name.
                raise

    def _use(self, digest: str, org_id: int | None = None) -> Image | None:
        """Return an image that is here, and note who asked for it; raises PullFailed over the budget. In a thread."""
        with self._lock:
            image = self.find(digest)
            if image is None:
                return None
            if not image.entries:
                image = self._measure(image)
            left_bytes, left_entries = self._left(org_id, digest)
            if image.disk_bytes > left_bytes or image.entries > left_entries:
                raise self._over_budget()
            marks = [self._note(digest), *([self._mark(digest, org_id)] if org_id is not None else [])]
            moment_ns = self._clock.now() * 1_000_000
            for mark in marks:
                mark.parent.mkdir(exist_ok=True)
                mark.touch()
                os.utime(mark, ns=(moment_ns, moment_ns))
            return image

    def _measure(self, image: Image) -> Image:
        """Write down the size of an image that was pulled before sizes were."""
        disk_bytes, entries = _size_of(image.root)
        note = self._note(image.digest)
        stored = {**json.loads(note.read_bytes()), "diskBytes": disk_bytes, "entries": entries}
        new = note.with_suffix(".new")
        new.write_text(json.dumps(stored))
        new.rename(note)
        return replace(image, disk_bytes=disk_bytes, entries=entries)

    def _digests(self) -> list[str]:
        names = os.listdir(self._folder) if self._folder.is_dir() else []
        return [digest for digest in (f"sha256:{name}" for name in names) if is_digest(digest)]

    def _take_away(self, digest: str, unused_since: int) -> bool:
        self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        gone = self._incoming / f"gone-{secrets.token_hex(8)}"
        with self._lock:
            if _moment_ms(self._note(digest)) > unused_since:
                return False
            self._place(digest).rename(gone)
        folders.remove(gone)
        return True

    def _clear_incoming(self, now: int) -> None:
        for left in self._incoming.glob("*"):
            if _moment_ms(left) <= now - DAY_MS:
                folders.remove(left)

    def _place(self, digest: str) -> Path:
        return self._folder / digest.removeprefix("sha256:")

    def _mark(self, digest: str, org_id: int) -> Path:
        return self._place(digest) / "users" / str(org_id)

    def _note(self, digest: str) -> Path:
        return self._place(digest) / "image.json"

    def _client(self) -> GuardedClient:
        return GuardedClient(self._targets, user_agent="Moorage-Images")

    def _registry(self, client: GuardedClient, reference: Reference) -> Registry:
        return Registry(client, self._targets, reference, self._terms)


async def _manifest(registry: Registry, digest: str) -> Manifest:
    _, found = await registry.manifest(digest)
    if isinstance(found, Index):
        raise BadImage("the image's index leads to another index")
    return found


async def _in_thread(work: Callable[[], None], stop: threading.Event) -> None:
    """Run in a thread; whoever is cancelled meanwhile goes on only when the thread has ended."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running])
        raise


def _size_of(root: Path) -> tuple[int, int]:
    """Return what the files of an image take on disk, each once whatever links lead to it, and how many there are."""
    sizes: dict[int, int] = {}
    for entry in folders.walk(root, is_lenient=True):
        found = entry.stat(follow_symlinks=False)
        sizes[found.st_ino] = max(found.st_blocks * folders.BLOCK, folders.LEAST)
    return sum(sizes.values()), len(sizes)


def _moment_ms(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0


def _config(stored: dict[str, Any]) -> ImageConfig:
    return ImageConfig(
        entrypoint=tuple(stored["entrypoint"]),
        cmd=tuple(stored["cmd"]),
        env=dict(stored["env"]),
        workdir=stored["workdir"],
        user=stored["user"],
    )
