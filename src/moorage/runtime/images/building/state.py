"""State of a stage while its instructions are executed."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import field

from moorage.core.kit.records import dataclass
from moorage.core.kit.texts import whole_number
from moorage.runtime.images.building import cache
from moorage.runtime.images.building.bases import Base
from moorage.runtime.images.building.config import Config
from moorage.runtime.images.dockerfile import instructions as ins
from moorage.runtime.images.dockerfile import stages
from moorage.runtime.images.dockerfile.errors import DockerfileError
from moorage.runtime.images.dockerfile.stages import Stage

PROXIES = frozenset(
    name
    for each in ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
    for name in (each, each.lower())
)


@dataclass(frozen=True, slots=True)
class OwnLayer:
    """A layer that the build made, uncompressed."""

    digest: str  # in lower-case hex
    size: int


@dataclass(slots=True)
class StageState:
    stage: Stage
    config: Config
    base: Base | None  # None for scratch
    chain: str  # key of the file tree so far
    escape: str
    own: list[OwnLayer] = field(default_factory=list)
    args: dict[str, str] = field(default_factory=dict)
    created_at: int = 0  # of the newest step

    def add(self, row_digest: str, size: int, created_at: int) -> None:
        """Add the layer of a step; "" if the step changed no file."""
        self.created_at = max(self.created_at, created_at)
        if row_digest:
            self.own.append(OwnLayer(row_digest, size))
            self.chain = cache.key_of(self.chain, row_digest)

    @property
    def env(self) -> dict[str, str]:
        """Variables for substitution; those of the image win over arguments."""
        return {**self.args, **self.config.env}

    def expand(self, line: int, text: str) -> str:
        return stages.expand(line, text, self.env, self.escape)

    def absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join("/", self.config.workdir, path))

    def add_args(self, each: ins.Arg, build_args: Mapping[str, str], global_args: Mapping[str, str]) -> None:
        for name, default in each.pairs:
            if name in build_args:
                self.args[name] = build_args[name]
            elif default is not None:
                self.args[name] = self.expand(each.line, default)
            elif name in global_args:
                self.args[name] = global_args[name]


def apply(state: StageState, each: ins.Instruction) -> bool:
    """Execute an instruction that changes the configuration only; returns whether it is one."""
    config, line = state.config, each.line
    try:
        match each:
            case ins.Env():
                values = [(state.expand(line, name), state.expand(line, value)) for name, value in each.pairs]
                for name, value in values:  # One instruction sees the variables from before it.
                    config.set_env(name, value)
            case ins.Label():
                for name, value in each.pairs:
                    config.set_label(state.expand(line, name), state.expand(line, value))
            case ins.Cmd():
                config.set_cmd(each.command)
            case ins.Entrypoint():
                config.set_entrypoint(each.command)
            case ins.User():
                config.set_user(state.expand(line, each.user))
            case ins.Expose():
                config.expose([word for text in each.ports for word in state.expand(line, text).split()])
            case ins.Volume():
                config.add_volumes([state.expand(line, path) for path in each.paths])
            case ins.StopSignal():
                config.set_text("StopSignal", _signal(state.expand(line, each.signal)))
            case ins.Shell():
                config.set_shell(each.words)
            case ins.OnBuild():
                config.add_trigger(each.trigger)
            case ins.Healthcheck():
                config.set_healthcheck(each)
            case ins.Maintainer():
                config.document["author"] = state.expand(line, each.name)
            case _:
                return False
    except DockerfileError:
        raise
    except ValueError as error:
        raise DockerfileError(line, str(error)) from None
    return True


def _signal(text: str) -> str:
    import signal

    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    known = {each.name for each in signal.Signals}
    if 1 <= (whole_number(text) or 0) <= 64 or name in known or name.startswith(("SIGRTMIN", "SIGRTMAX")):
        return text
    raise ValueError(f"{text[:40]!r} is not a signal such as SIGTERM or 15")
