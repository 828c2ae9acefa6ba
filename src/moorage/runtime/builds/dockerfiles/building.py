"""Builds the Dockerfile of a project: reads it and its ignore file, and runs the image builder in a build slot."""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import time
from collections.abc import Callable
from pathlib import Path

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.kit import folders
from moorage.core.kit.records import dataclass
from moorage.runtime.builds import caches, diagnosis, environment
from moorage.runtime.builds.detection.reading import Folder, folder_inside
from moorage.runtime.builds.detection.table.other import DOCKERFILES
from moorage.runtime.builds.ports import BuildFailed, BuildRequest
from moorage.runtime.images.building import executor, threads
from moorage.runtime.images.building.executor import ImageBuilder
from moorage.runtime.images.building.files.layer_folders import LayerFolders
from moorage.runtime.images.building.ports import ImageRequest, Limits, Output, StepFailed, Workspace
from moorage.runtime.images.dockerfile import ignore, stages
from moorage.runtime.images.dockerfile import instructions as ins
from moorage.runtime.images.dockerfile.errors import DockerfileError
from moorage.runtime.images.dockerfile.ignore import Ignored
from moorage.runtime.images.dockerfile.stages import Dockerfile
from moorage.runtime.images.making import make_images
from moorage.runtime.images.sizes import size_text
from moorage.runtime.images.sources import Sources
from moorage.runtime.sandbox.rootfs.spec import FIRST_RANGE, IDS, RANGES
from moorage.runtime.workers import toolchain
from moorage.settings import Settings

IGNORE = ".dockerignore"
DEFAULT = "Dockerfile"
GRACE_S = 5
APT_CONFIG = "/opt/moorage/apt.conf"  # path inside


@dataclass(frozen=True, slots=True)
class ImageSource:
    """Dockerfile, build context and ignored files of a repository."""

    path: str  # of the Dockerfile, below the repository
    context: str  # folder below the repository; "" is the repository
    text: str
    file: Dockerfile
    ignored: Ignored
    args: dict[str, str]

    @property
    def has_runs(self) -> bool:
        return any(isinstance(each, ins.Run) for stage in self.file.stages for each in stage.instructions)

    def describe(self) -> list[str]:
        return [
            f"build:    {self.path}, context {self.context or './'}",
            *executor.describe(self.file, self.args),
        ]


def read(request: BuildRequest, folder: Folder) -> ImageSource:
    """Read and parse the Dockerfile of a project; raises BuildFailed."""
    settings = request.image
    path = _path(folder, settings.dockerfile)
    text = folder.find_exact_text(path)
    if text is None:
        raise BuildFailed(
            f"there is no {path} in {folder.base or 'the repository'}: set dockerFilePath to the path of the Dockerfile"
        )
    context = folder_inside(folder.path, settings.context, "dockerBuildContextDir")
    if not os.path.isdir(folder.path / context):
        raise BuildFailed(f"dockerBuildContextDir {settings.context!r} is not a folder of the repository")
    full = posixpath.join(folder.base, path)
    try:
        file = stages.load(text, settings.args, executor.predefined_args(), settings.target)
    except DockerfileError as error:
        raise BuildFailed(f"{full} {error}") from None
    return ImageSource(
        full, posixpath.join(folder.base, context).rstrip("/"), text, file, _ignored(folder, path, context),
        dict(settings.args),
    )  # fmt: skip


def _path(folder: Folder, name: str) -> str:
    path = posixpath.normpath(name.strip() or DEFAULT)
    if path.startswith(("/", "../")) or path in (".", ".."):
        raise BuildFailed(f"dockerFilePath {name!r} should be a file inside the repository")
    if path == DEFAULT and not folder.has(DEFAULT):
        return next((each for each in DOCKERFILES if folder.has(each)), DEFAULT)
    return path


def _ignored(folder: Folder, path: str, context: str) -> Ignored:
    """Return the rules of `<Dockerfile>.dockerignore`, else of `.dockerignore` in the context."""
    for name in (f"{path}{IGNORE}", posixpath.join(context, IGNORE)):
        text = folder.find_exact_text(name)
        if text is not None:
            try:
                return ignore.parse(text)
            except ValueError as error:
                raise BuildFailed(f"{name} {error}") from None
    return ignore.parse("")


def limits_of(settings: Settings) -> Limits:
    """Return the limits of RUN: those of all builds."""
    return Limits(
        memory_mb=settings.build_memory_mb,
        pids=environment.MAX_PIDS,
        file_mb=environment.MAX_FILE_MB,
        disk_mb=environment.MAX_DISK_MB,
        reserve_mb=settings.disk_reserve_mb,
        output_bytes=environment.MAX_OUTPUT_BYTES,
        allow=tuple(settings.sandbox_allow),
        block=tuple(settings.sandbox_block),
    )


def _apt_settings(*, has_one_id: bool) -> str:
    """Return the settings of apt in RUN: no terminal, which sandboxes lack, and with one id no change of the user."""
    return 'Dpkg::Use-Pty "0";\n' + ('APT::Sandbox::User "root";\n' if has_one_id else "")


@dataclass(frozen=True, slots=True)
class ImageBuild:
    """One build that holds a slot."""

    settings: Settings
    request: BuildRequest
    source: ImageSource
    builder: ImageBuilder
    say: Callable[[str], None]
    output: Output

    async def run(self, slot: int, cache_root: Path) -> str:
        """Build the image; return the digest of its manifest. Raises BuildFailed."""
        scratch = cache_root / f".build-{slot}"
        with contextlib.ExitStack() as stack:
            cache = stack.enter_context(caches.held(cache_root, self.request.cache))
            if cache is None:
                self.say("another build uses this project's cache: this one builds without its cache mounts")
            try:
                await threads.to_end(self._open, scratch, cache)
                return await self._build(slot, scratch, cache)
            finally:
                await threads.to_end(self._close, scratch, cache)

    def _open(self, scratch: Path, cache: caches.Cache | None) -> None:
        folders.remove(scratch)  # of a build that was killed
        scratch.mkdir(parents=True, mode=0o700)
        if cache is not None:
            cache.open(is_clean=not self.request.use_caches)
            cache.mounts.mkdir(exist_ok=True, mode=0o700)

    def _close(self, scratch: Path, cache: caches.Cache | None) -> None:
        if cache is not None:
            cache.note_size()
        folders.remove(scratch)

    async def _build(self, slot: int, scratch: Path, cache: caches.Cache | None) -> str:
        minutes = self.settings.build_minutes
        authorities = toolchain.installer_authorities(self.settings.extra_ca)
        apt = scratch / "apt.conf"
        apt.write_text(_apt_settings(has_one_id=os.geteuid() != 0))
        apt.chmod(0o644)
        workspace = Workspace(
            scratch=scratch,
            mounts=cache.mounts if cache is not None else None,
            first_id=FIRST_RANGE + IDS * (RANGES + slot),
            deadline=time.monotonic() + minutes * 60,
            say=self.say,
            output=self.output,
            env={
                **toolchain.operator_environment(),
                **(toolchain.trusting(toolchain.AUTHORITIES) if authorities else {}),
                "APT_CONFIG": APT_CONFIG,
            },
            binds={APT_CONFIG: str(apt), **({toolchain.AUTHORITIES: authorities} if authorities else {})},
        )
        if os.geteuid() != 0 and self.source.has_runs:
            self.say("note: this platform does not run as root: a change of owners in RUN succeeds without effect")
        try:
            # Downloads and copies have no other limit of time; RUN ends at the deadline with its own message.
            async with asyncio.timeout(minutes * 60 + GRACE_S):
                built = await self.builder.build(
                    self._image_request(), self.source.file, self.source.ignored, workspace
                )
        except TimeoutError:
            raise BuildFailed(f"{self.source.path}: {diagnosis.timeout(minutes)}") from None
        except StepFailed as error:
            why = diagnosis.reason(error.finished, error.output, minutes, self.request.project)
            raise BuildFailed(f"{self.source.path} {error}: {why}") from None
        except DockerfileError as error:
            raise BuildFailed(f"{self.source.path} {error}") from None
        self.say(
            f"image:    {built.digest}, {len(built.layers)} layers, {size_text(built.size)}; "
            f"{built.cached_steps} of {built.steps} steps from the cache"
        )
        return built.digest

    def _image_request(self) -> ImageRequest:
        settings = self.request.image
        return ImageRequest(
            org_id=settings.org_id,
            owner=settings.owner,
            cache=self.request.cache,
            source=self.request.source,
            dockerfile=self.source.path,
            context=self.source.context,
            text=self.source.text,
            args=settings.args,
            target=settings.target,
            secrets=self.request.env,
            use_caches=self.request.use_caches,
            has_credentials=settings.has_credentials,
        )


def make_builder(settings: Settings, db: Database, artifacts: ArtifactStore, sources: Sources) -> ImageBuilder:
    """Make the builder of Dockerfiles, with the limits and the folder of layers of these settings."""
    images = make_images(db, artifacts, sources)
    layers = LayerFolders(settings.folder("image-layers"))
    return ImageBuilder(db, artifacts, images, sources, limits_of(settings), layers)
