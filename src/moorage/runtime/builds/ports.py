"""What a build is asked for, what it says meanwhile, and what comes of it. Nothing here knows of projects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Stream = Literal["stdout", "stderr", "system"]
Kind = Literal["static", "container"]

DEFAULT_CMD = "npm run build"
DEFAULT_DIR = "dist"


class BuildFailed(Exception):
    """The build cannot give a result; the text is a sentence for the user."""


class Sink(Protocol):
    """Where the log of a build goes."""

    def write(self, stream: Stream, text: str) -> None:
        """Add text, which may hold many lines or part of one."""
        ...


@dataclass(frozen=True, slots=True)
class BuildRequest:
    cache: str  # names the cache folder; unique for its owner, and another one for code that gets no secrets
    source: Path  # the checked-out repository; the builder may write into it
    wanted: Literal["static", "container", "auto"]
    language: str  # "auto", "nodejs", "python", "go" or "docker"
    base_dir: str
    build_dir: str
    build_cmd: str
    start_cmd: str
    entry_point: str
    is_default_build: bool  # the user left the build command and folder as they were
    env: Mapping[str, str]  # variables and secrets together
    use_caches: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What was found in a repository, and what is done with it. Texts are empty where there is nothing to do."""

    kind: Kind
    language: str  # "nodejs", "python", "go", "docker", or "" for plain files
    framework: str = ""  # such as "Vite" or "FastAPI"
    install: str = ""  # how dependencies are installed, such as "npm ci"
    build: str = ""  # the command that is run, by a shell inside the sandbox
    output_dir: str = ""  # below the base folder; "" is the base folder itself
    start: str = ""  # the command that starts a container app
    server: str = ""  # a package that `start` needs and the app does not name, such as "uvicorn"
    notes: tuple[str, ...] = ()  # what the user should know, one sentence each
    base: str = ""  # the base folder below the repository, "" for the repository itself


@dataclass(frozen=True, slots=True)
class Built:
    plan: Plan
    folder: Path  # what to publish: plain files and folders only, below the source
