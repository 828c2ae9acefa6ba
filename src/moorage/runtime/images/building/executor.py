"""Builds an image from a Dockerfile: stages as needed, instruction by instruction, with cached layers."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Protocol, TypeVar

from moorage.core import disk
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.kit.records import dataclass
from moorage.errors import DiskFull
from moorage.runtime.images.building import config as configs
from moorage.runtime.images.building import finishing
from moorage.runtime.images.building import state as stage_states
from moorage.runtime.images.building.bases import Base, Bases
from moorage.runtime.images.building.cache import LayerCache
from moorage.runtime.images.building.config import Config
from moorage.runtime.images.building.files import packing, selecting
from moorage.runtime.images.building.files.layer_folders import LayerFolders
from moorage.runtime.images.building.files.selecting import Hashes, Source
from moorage.runtime.images.building.files.tree import Tree, TreeError
from moorage.runtime.images.building.files.writing import Budget
from moorage.runtime.images.building.ports import BuiltImage, ImageRequest, Limits, Workspace
from moorage.runtime.images.building.state import PROXIES, StageState
from moorage.runtime.images.building.steps.copy import CopyStep
from moorage.runtime.images.building.steps.run import RunStep
from moorage.runtime.images.building.steps.workdir import WorkdirStep
from moorage.runtime.images.building.tables import CachedLayer
from moorage.runtime.images.building.threads import to_end
from moorage.runtime.images.dockerfile import instructions as ins
from moorage.runtime.images.dockerfile import parser, stages
from moorage.runtime.images.dockerfile.errors import DockerfileError
from moorage.runtime.images.dockerfile.ignore import Ignored
from moorage.runtime.images.dockerfile.stages import Dockerfile, Stage
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.sources import Sources
from moorage.runtime.images.store import Images
from moorage.runtime.sandbox.rootfs.spec import CHANGES

MB = 2**20
MAX_LAYERS = 120  # of the build itself: an overlay mount has at most 500 lower folders
_ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}
_WITH_LAYER = (ins.Run, ins.Copy, ins.Workdir)

T = TypeVar("T")


class Step(Protocol):
    """An instruction that makes a layer."""

    async def key(self) -> str: ...

    async def content_key(self) -> str | None: ...

    async def execute(self, folder: Path, lowers: list[Path]) -> packing.Owners:
        """Write the layer to the sub-folder CHANGES of a folder; return owners that the disk cannot have."""
        ...


def predefined_args(architecture: str | None = None) -> dict[str, str]:
    """Return the platform arguments that every Dockerfile may declare."""
    machine = architecture or _ARCHITECTURES.get(platform.machine(), platform.machine())
    args: dict[str, str] = {}
    for kind in ("TARGET", "BUILD"):
        args |= {
            f"{kind}PLATFORM": f"linux/{machine}",
            f"{kind}OS": "linux",
            f"{kind}ARCH": machine,
            f"{kind}VARIANT": "",
        }
    return args


@dataclass(frozen=True)
class ImageBuilder:
    """Builds images for all organizations of this machine."""

    db: Database
    store: ArtifactStore
    images: Images
    sources: Sources  # of base images
    limits: Limits
    folders: LayerFolders
    architecture: str = field(default_factory=lambda: predefined_args()["TARGETARCH"])

    async def build(
        self, request: ImageRequest, file: Dockerfile, ignored: Ignored, workspace: Workspace
    ) -> BuiltImage:
        """Build the target stage and store the image; raises DockerfileError and StepFailed."""
        with contextlib.ExitStack() as stack:
            build = _Build(self, request, file, ignored, workspace, stack)
            try:
                return await build.run()
            finally:
                await build.cache.trim()
                stack.close()
                await to_end(self.folders.trim)


class _Build:
    def __init__(
        self,
        builder: ImageBuilder,
        request: ImageRequest,
        file: Dockerfile,
        ignored: Ignored,
        workspace: Workspace,
        stack: contextlib.ExitStack,
    ) -> None:
        self.cache = LayerCache(builder.db, builder.store, request.org_id, request.cache, is_used=request.use_caches)
        self.hashes = Hashes()
        self.request = request
        self.workspace = workspace
        self.limits = builder.limits
        self.targets = builder.sources.targets
        self.context = Source(
            Tree([request.source / request.context], is_strict=True),
            "the build context",
            ignored,
            keeps_owners=False,
        )
        self._builder = builder
        self._file = file
        self._stack = stack
        self._bases = Bases(
            builder.images,
            builder.sources,
            builder.architecture,
            self.cache,
            workspace,
            self._check_room,
            has_credentials=request.has_credentials,
        )
        self._states: dict[int, StageState] = {}
        self._open: list[Stage] = []
        self._steps = self._cached_steps = 0
        self._used_args: set[str] = set()
        self._made_bytes = 0  # of all new layers of the build

    async def run(self) -> BuiltImage:
        await self._store_base(self._file.target)
        state = await self._built(self._file.target)
        base_layers = await self._at(state.stage.line, self._bases.store(state.base)) if state.base else []
        layers = finishing.layers_of(base_layers, state.own)
        digest = await finishing.store(self._builder.db, self._builder.store, self.request, state, layers)
        for name in sorted(set(self.request.args) - self._used_args - PROXIES):
            self.workspace.say(f"note: the build argument {name} is not declared by any ARG that was executed")
        return BuiltImage(digest, layers, sum(layer.size for layer in layers), self._cached_steps, self._steps)

    async def _store_base(self, stage: Stage) -> None:
        """Store the layers of the target's base image before they are unpacked, so that they are downloaded once."""
        while stage.base_stage is not None:
            stage = stage.base_stage
        if stage.base.lower() != stages.SCRATCH:
            base: Base = await self._at(stage.line, self._bases.resolve(stage.base))
            await self._at(stage.line, self._bases.store(base))

    async def _at(self, line: int, work: Awaitable[T]) -> T:
        """Wait for work on images, and add the line to its errors."""
        try:
            return await work
        except (PullFailed, ValueError) as error:
            raise DockerfileError(line, str(error)) from None

    async def _built(self, stage: Stage) -> StageState:
        """Return a stage after all its instructions; each stage is built once."""
        if stage.index not in self._states:
            if stage in self._open:
                raise DockerfileError(stage.line, f"the stage {stage.label} needs itself")
            self._open.append(stage)
            self._states[stage.index] = await self._build_stage(stage)
            self._open.remove(stage)
        return self._states[stage.index]

    async def _build_stage(self, stage: Stage) -> StageState:
        state = await self._begin(stage)
        triggers = [parser.parse_trigger(text, stage.line) for text in state.config.take_triggers()]
        instructions = [*triggers, *stage.instructions]
        total = 1 + sum(isinstance(each, _WITH_LAYER) for each in instructions)
        self.workspace.say(f"[{stage.label} 1/{total}] FROM {stage.base}")
        number = 1
        for each in instructions:
            if isinstance(each, _WITH_LAYER):
                number += 1
                await self._layer_step(state, each, f"[{stage.label} {number}/{total}]")
            elif isinstance(each, ins.Arg):
                state.add_args(each, self.request.args, self._file.global_args)
                self._used_args |= {name for name, _ in each.pairs}
                state.config.add_history(each.text, state.created_at, is_empty=True)
            elif stage_states.apply(state, each):
                state.config.add_history(each.text, state.created_at, is_empty=True)
        return state

    async def _begin(self, stage: Stage) -> StageState:
        """Return the state right after FROM."""
        escape = self._file.escape
        proxies = {name: value for name, value in self.request.args.items() if name in PROXIES}
        if stage.base_stage is not None:
            below = await self._built(stage.base_stage)
            config = Config(below.config.document)
            state = StageState(stage, config, below.base, below.chain, escape, [*below.own], proxies)
            state.created_at = below.created_at
            return state
        if stage.base.lower() == stages.SCRATCH:
            config = Config(configs.scratch(self._builder.architecture))
            return StageState(stage, config, None, stages.SCRATCH, escape, args=proxies)
        base: Base = await self._at(stage.line, self._bases.resolve(stage.base))
        config = Config(base.document)
        if "PATH" not in config.env:
            config.set_env("PATH", configs.PATH)
        return StageState(stage, config, base, f"base:{base.digest}", escape, args=proxies)

    async def _layer_step(self, state: StageState, each: ins.Instruction, label: str) -> None:
        self._steps += 1
        if len(state.own) >= MAX_LAYERS:
            raise DockerfileError(each.line, f"the image has more than {MAX_LAYERS} layers: join some instructions")
        title = f"{label} {each.text.splitlines()[0]}"
        step: Step
        if isinstance(each, ins.Run):
            step = RunStep(self, state, each)
        elif isinstance(each, ins.Copy):
            step = CopyStep(self, state, each)
        else:
            assert isinstance(each, ins.Workdir)
            step = WorkdirStep(self, state, each)
        row = await self._find(step)
        if row is not None:
            self._cached_steps += 1
            self.workspace.say(f"{title}: unchanged, taken from the cache")
        else:
            self.workspace.say(title)
            row = await self._execute(state, each, step)
        state.add(row.digest, row.size, row.created_at)
        state.config.add_history(each.text, row.created_at, is_empty=not row.digest)

    async def _find(self, step: Step) -> CachedLayer | None:
        key = await step.key()
        row = await self.cache.find(key)
        if row is None and (other := await step.content_key()) is not None:
            row = await self.cache.find(other)
            if row is not None:
                row = await self.cache.add(key, row.digest, row.size)
        return row

    async def _execute(self, state: StageState, each: ins.Instruction, step: Step) -> CachedLayer:
        is_alone = isinstance(each, ins.Copy) and each.is_link
        lowers = [] if is_alone else await self.lowers(state, each.line)
        try:
            digest, size = await self._make(step, lowers)
        except TreeError as error:
            raise DockerfileError(each.line, str(error)) from None
        except OSError as error:
            if disk.is_full(error):
                raise DiskFull from error
            raise DockerfileError(each.line, f"its files cannot be written: {error.strerror or error}") from None
        if (other := await step.content_key()) is not None:
            await self.cache.add(other, digest, size)
        return await self.cache.add(await step.key(), digest, size)

    async def _make(self, step: Step, lowers: list[Path]) -> tuple[str, int]:
        """Execute a step; return digest and size of its layer, "" if nothing has changed."""
        with self._builder.folders.new() as folder:
            owners = await step.execute(folder, lowers)
            archive = folder / "layer.tar"
            entries = await to_end(packing.pack, folder / CHANGES, archive, owners=owners, budget=self.budget())
            if not entries:
                return "", 0
            self._made_bytes += archive.stat().st_size
            digest, size = await self.cache.put(archive)
            archive.unlink()
            await to_end(self._builder.folders.publish, folder, digest)
            return digest, size

    def _check_room(self, more_bytes: int) -> None:
        disk.check_room(self.workspace.scratch, more_bytes, self.limits.reserve_mb)

    @property
    def secrets(self) -> dict[str, str]:
        return dict(self.request.secrets)

    def budget(self) -> Budget:
        """Return the limits of one step: disk space and time are those of the whole build."""

        return Budget(
            self.limits.disk_mb * MB,
            self.limits.files,
            self._check_room,
            used_bytes=self._made_bytes,
            deadline=self.workspace.deadline,
        )

    async def lowers(self, state: StageState, line: int) -> list[Path]:
        """Return the folders of a stage's files on this machine, lowest first."""
        folders: list[Path] = []
        if state.base is not None:
            folders.append(await self._at(line, self._bases.root(state.base)))
        for layer in state.own:
            folder = self._builder.folders.hold(layer.digest, self._stack)
            if folder is None:
                folder = await self._fetch(layer.digest)
            folders.append(folder)
        return folders

    async def _fetch(self, digest: str) -> Path:
        archive = self.workspace.scratch / f"{digest}.tar"
        await self._builder.store.fetch(self.request.org_id, digest, archive)
        await to_end(self._builder.folders.unpack, archive, digest)
        archive.unlink()
        folder = self._builder.folders.hold(digest, self._stack)
        if folder is None:
            raise TreeError("a cached layer was removed while it was used: build again")
        return folder

    async def source(self, line: int, name: str, user: Stage) -> tuple[Callable[[], Awaitable[Source]], str]:
        """Return a function that opens the source of `--from`, and the key of its file tree."""
        if not name:
            return self._give_context, ""
        stage = self._file.source_of(line, name, user)
        if isinstance(stage, Stage):
            state = await self._built(stage)
            return lambda: self._tree(
                state, line, f"the stage {stage.name}" if stage.name else stage.label
            ), state.chain
        if name.lower() == stages.SCRATCH:
            raise DockerfileError(line, "scratch has no files to copy")
        names = ", ".join(stage.name for stage in self._file.stages if stage.name)
        try:
            base = await self._bases.resolve(name)
        except (PullFailed, ValueError) as error:
            stages_text = f"the stages are {names}" if names else "no stage has a name"
            raise DockerfileError(line, f"{name!r} is neither a stage ({stages_text}) nor an image: {error}") from None
        state = StageState(user, Config(base.document), base, f"base:{base.digest}", self._file.escape)
        return lambda: self._tree(state, line, f"the image {name}"), state.chain

    async def _give_context(self) -> Source:
        return self.context

    async def _tree(self, state: StageState, line: int, label: str) -> Source:
        return Source(Tree(await self.lowers(state, line)), label, selecting.NONE)


def describe(file: Dockerfile, args: Mapping[str, str]) -> list[str]:
    """Return the plan of a build as lines for the log."""
    needed: list[Stage] = []

    def visit(stage: Stage) -> None:
        for other in stages.needed(file, stage):
            if other not in needed:
                visit(other)
        if stage not in needed:
            needed.append(stage)

    visit(file.target)
    lines = [f"stages:   {', '.join(f'{each.label} (from {each.base})' for each in needed)}"]
    skipped = [each.label for each in file.stages if each not in needed]
    lines += [f"skipped:  {', '.join(skipped)}"] if skipped else []
    return lines + ([f"args:     {', '.join(sorted(args))}"] if args else [])
