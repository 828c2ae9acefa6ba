"""The instructions of a Dockerfile. Variables are not replaced yet."""

from __future__ import annotations

from dataclasses import field

from moorage.core.kit.records import dataclass
from moorage.runtime.images.dockerfile.lines import Heredoc


@dataclass(frozen=True, slots=True)
class Instruction:
    line: int
    text: str  # as it stands in the file, for the log and the history of the image


@dataclass(frozen=True, slots=True)
class Command:
    words: tuple[str, ...]
    is_shell: bool  # one word for the shell; otherwise an argv


@dataclass(frozen=True, slots=True)
class From(Instruction):
    image: str
    platform: str = ""
    name: str = ""  # of the stage, lower case


@dataclass(frozen=True, slots=True)
class Arg(Instruction):
    pairs: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Env(Instruction):
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Label(Instruction):
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Mount:
    """`RUN --mount`: its options, with variables not replaced."""

    kind: str  # bind, cache, tmpfs or secret
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class Run(Instruction):
    command: Command
    mounts: tuple[Mount, ...] = ()
    has_network: bool = True
    heredocs: tuple[Heredoc, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy(Instruction):
    """COPY or ADD."""

    sources: tuple[str, ...]
    target: str
    is_add: bool = False
    from_: str = ""  # stage or image; "" is the build context
    chown: str = ""
    chmod: str = ""
    checksum: str = ""
    exclude: tuple[str, ...] = ()
    is_link: bool = False
    keeps_parents: bool = False
    unpacks: bool | None = None
    inline: dict[str, Heredoc] = field(default_factory=dict)  # by the source's word


@dataclass(frozen=True, slots=True)
class Workdir(Instruction):
    path: str


@dataclass(frozen=True, slots=True)
class User(Instruction):
    user: str


@dataclass(frozen=True, slots=True)
class Expose(Instruction):
    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Volume(Instruction):
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StopSignal(Instruction):
    signal: str


@dataclass(frozen=True, slots=True)
class Shell(Instruction):
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OnBuild(Instruction):
    trigger: str


@dataclass(frozen=True, slots=True)
class Healthcheck(Instruction):
    command: Command | None  # None for NONE
    intervals: dict[str, int]  # of the image configuration, in nanoseconds
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Cmd(Instruction):
    command: Command


@dataclass(frozen=True, slots=True)
class Entrypoint(Instruction):
    command: Command


@dataclass(frozen=True, slots=True)
class Maintainer(Instruction):
    name: str
