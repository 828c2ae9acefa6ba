"""Stages of a Dockerfile: their base images, dependencies, and the order to build them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from moorage.core.kit.records import dataclass
from moorage.core.kit.texts import whole_number
from moorage.runtime.images.dockerfile import instructions as ins
from moorage.runtime.images.dockerfile import parser, words
from moorage.runtime.images.dockerfile.errors import DockerfileError

SCRATCH = "scratch"


@dataclass(slots=True)
class Stage:
    index: int
    name: str  # "" for a stage without a name
    line: int
    base: str  # image or stage name, with its variables replaced
    instructions: list[ins.Instruction] = field(default_factory=list)
    base_stage: Stage | None = None

    @property
    def label(self) -> str:
        return self.name or f"stage {self.index}"


@dataclass(frozen=True, slots=True)
class Dockerfile:
    stages: tuple[Stage, ...]
    global_args: Mapping[str, str]  # ARG before the first FROM, and the predefined ones
    escape: str
    target: Stage

    def find(self, name: str) -> Stage | None:
        """Return a stage by its name or number."""
        wanted = name.lower()
        named = [stage for stage in self.stages if stage.name == wanted]
        if named:
            return named[-1]
        number = whole_number(name)
        return self.stages[number] if number is not None and number < len(self.stages) else None

    def source_of(self, line: int, name: str, user: Stage) -> Stage | str:
        """Return the stage of `--from`, or the name of an image."""
        stage = self.find(name)
        if stage is None and whole_number(name) is not None:
            raise DockerfileError(line, f"there is no stage {name}: the file has {len(self.stages)}, counted from 0")
        if stage is user:
            raise DockerfileError(line, f"the stage {user.label} copies from itself")
        return stage if stage is not None else name


def load(text: str, build_args: Mapping[str, str], predefined: Mapping[str, str], target: str = "") -> Dockerfile:
    """Parse a Dockerfile and find the stage to build; raises DockerfileError."""
    parsed, escape = parser.parse(text)
    global_args, stages = dict(predefined), list[Stage]()
    for each in parsed:
        if isinstance(each, ins.From):
            stages.append(_stage(each, stages, global_args, escape))
        elif stages:
            stages[-1].instructions.append(each)
        elif isinstance(each, ins.Arg):
            _add_args(global_args, each, build_args, escape)
        else:
            raise DockerfileError(each.line, "the first instruction should be FROM, with only ARG before it")
    if not stages:
        raise DockerfileError(1, "the file has no FROM")
    file = Dockerfile(tuple(stages), global_args, escape, stages[-1])
    if target:
        target_stage = file.find(target)
        if target_stage is None:
            names = ", ".join(stage.label for stage in stages)
            raise DockerfileError(stages[-1].line, f"there is no stage {target!r} to build (the file has {names})")
        file = Dockerfile(tuple(stages), global_args, escape, target_stage)
    _check_circles(file)
    return file


def expand(line: int, text: str, env: Mapping[str, str], escape: str) -> str:
    try:
        return words.expand(text, env, escape)
    except ValueError as error:
        raise DockerfileError(line, str(error)) from None


def _stage(each: ins.From, stages: list[Stage], env: Mapping[str, str], escape: str) -> Stage:
    base = expand(each.line, each.image, env, escape)
    if not base:
        raise DockerfileError(each.line, f"the base image {each.image!r} is empty: give its ARG a default value")
    if any(each.name and stage.name == each.name for stage in stages):
        raise DockerfileError(each.line, f"the stage name {each.name!r} is used twice")
    _check_platform(each, env, escape)
    named = [stage for stage in stages if stage.name and stage.name == base.lower()]
    return Stage(len(stages), each.name, each.line, base, base_stage=named[-1] if named else None)


def _check_platform(each: ins.From, env: Mapping[str, str], escape: str) -> None:
    platform = expand(each.line, each.platform, env, escape)
    mine = env["TARGETPLATFORM"]
    if platform and platform.split("/")[:2] != mine.split("/")[:2]:
        raise DockerfileError(each.line, f"--platform={platform} is not supported: this machine is {mine}")


def _add_args(env: dict[str, str], each: ins.Arg, build_args: Mapping[str, str], escape: str) -> None:
    for name, default in each.pairs:
        if name in build_args:
            env[name] = build_args[name]
        elif default is not None:
            env[name] = expand(each.line, default, env, escape)


def sources_of(stage: Stage) -> list[tuple[int, str]]:
    """Return line and name of everything that a stage copies or mounts from."""
    references: list[tuple[int, str]] = []
    for each in stage.instructions:
        if isinstance(each, ins.Copy) and each.from_:
            references.append((each.line, each.from_))
        elif isinstance(each, ins.Run):
            references += [(each.line, mount.options["from"]) for mount in each.mounts if mount.options.get("from")]
    return references


def needed(file: Dockerfile, stage: Stage) -> list[Stage]:
    """Return the stages that a stage directly builds on."""
    sources = (file.source_of(line, name, stage) for line, name in sources_of(stage))
    candidates = [stage.base_stage, *(each for each in sources if isinstance(each, Stage))]
    return [each for each in candidates if each is not None]


def _check_circles(file: Dockerfile) -> None:
    done: set[int] = set()

    def visit(stage: Stage, path: list[Stage]) -> None:
        if stage in path:
            names = " -> ".join(each.label for each in [*path[path.index(stage) :], stage])
            raise DockerfileError(stage.line, f"the stages need each other in a circle: {names}")
        if stage.index in done:
            return
        for other in needed(file, stage):
            visit(other, [*path, stage])
        done.add(stage.index)

    visit(file.target, [])
