"""Request, log and result of a build, independent of products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from moorage.core.kit.decoding import decoder_of
from moorage.core.kit.records import dataclass

Stream = Literal["stdout", "stderr", "system"]
Kind = Literal["static", "container"]
Wanted = Literal["static", "container", "auto"]

DEFAULT_CMD = "npm run build"
DEFAULT_DIR = "dist"
DOCKERFILE = "./Dockerfile"
CHOSEN_BY_ENGINE = Path()
CREATED_DATABASE = "MOORAGE_CREATED_DATABASE"  # variable of an app whose first deployment created its database


class BuildFailed(Exception):
    """The build failed; the message is for the user."""


class NeedsPython(BuildFailed):
    """A dependency needs another version of Python, such as `>=3.12`."""

    def __init__(self, message: str, specifier: str) -> None:
        super().__init__(message)
        self.specifier = specifier


class NeedsNode(BuildFailed):
    """A native module is not compiled with this version of Node.js, and may be with an older one, such as `16`."""

    def __init__(self, message: str, older: str) -> None:
        super().__init__(message)
        self.older = older


class Sink(Protocol):
    """Receiver of a build's log."""

    def write(self, stream: Stream, text: str) -> None:
        """Add text of many lines or part of one."""
        ...


def args_text(args: Mapping[str, str]) -> str:
    """Encode build arguments for the database."""
    return msgspec.json.encode(args).decode()


read_args = decoder_of(dict[str, str]).decode


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """Owner of the stored result, and settings of a build from a Dockerfile."""

    org_id: int = 0
    owner: str = ""  # holds the references to the artifacts
    dockerfile: str = DOCKERFILE  # below the base folder
    context: str = "./"  # below the base folder
    args: Mapping[str, str] = field(default_factory=dict)
    target: str = ""  # stage to build; "" for the last one
    has_credentials: bool = True  # of the organization's registries; False for code of a fork


@dataclass(frozen=True, slots=True)
class BuildRequest:
    cache: str  # name of the cache folder: one per owner, and another one for code without secrets
    source: Path  # checked-out repository, which the builder may write into; products pass CHOSEN_BY_ENGINE
    wanted: Wanted
    language: str  # "auto", "nodejs", "python", "go" or "docker"
    base_dir: str
    build_dir: str
    build_cmd: str
    start_cmd: str
    entry_point: str
    is_default_build: bool  # the user changed neither the build command nor the build folder
    env: Mapping[str, str]  # variables and secrets
    use_caches: bool
    health_path: str | None = None  # for the log; "" where the user set none, None for runs that serve nothing
    image: ImageSettings = field(default_factory=ImageSettings)
    project: str = ""  # name, for commands in the reason of a failure
    egress: tuple[str, ...] = ()  # "address:port" of databases that the commands may connect to
    url: str = ""  # address at which visitors reach the result; "" where nothing is served


def request_of_folder(
    folder: Path, *, wanted: Wanted = "auto", base_dir: str = "./", start_cmd: str = ""
) -> BuildRequest:
    """Return the request for a folder with default settings, to detect its kind without a build."""
    return BuildRequest(
        cache="",
        source=folder.resolve(),
        wanted=wanted,
        language="auto",
        base_dir=base_dir,
        build_dir=DEFAULT_DIR,
        build_cmd=DEFAULT_CMD,
        start_cmd=start_cmd,
        entry_point="",
        is_default_build=True,
        env={},
        use_caches=False,
        health_path="",
    )


@dataclass(frozen=True, slots=True)
class Assets:
    """Packages of npm and a script that build the pages, styles or scripts of an app in another language."""

    folder: str  # with package.json, below the repository
    install: str  # label of the installation, such as "npm ci"
    build: str  # such as "npm run build"; "" where the app's own build uses the packages


@dataclass(frozen=True, slots=True)
class Plan:
    """Detected kind of a repository and the commands to build it; "" where not needed."""

    kind: Kind
    language: str  # "nodejs", "python", "go", "docker", or "" for plain files
    framework: str = ""  # such as "Vite" or "FastAPI"
    install: str = ""  # label of the installation, such as "npm ci"
    build: str = ""  # shell command, run inside the sandbox
    output_dir: str = ""  # below the base folder; "" is the base folder itself
    start: str = ""  # command that starts a container app
    server: str = ""  # packages that the commands need and the project does not list, such as "uvicorn"
    notes: tuple[str, ...] = ()  # sentences for the log
    base: str = ""  # folder of the release below the repository; "" is the repository itself
    workdir: str = ""  # folder of the app below `base`: a package of the workspace at `base`
    node: str = ""  # version of Node.js, such as "20.19.6"; "" for the machine's
    keys: tuple[str, ...] = ()  # variables that get a random value of the project, unless the user sets them
    values: tuple[tuple[str, str], ...] = ()  # variables with the values of an example, unless the user sets them
    own_addresses: tuple[tuple[str, str], ...] = ()  # variables with templates that the project's address fills
    variables: tuple[str, ...] = ()  # that an example of the repository names: for the reason of a failed start
    addresses: tuple[str, ...] = ()  # that the code reads the address of a MongoDB or Redis from: for the same reason
    packages: tuple[str, ...] = ()  # workspace packages that are built before the app, below the repository
    database: str = ""  # engine of the database server that the app has drivers of: "postgresql" or "mysql"
    needs_database: bool = False  # files of the repository declare such a server, and the code knows no SQLite
    has_own_database: bool = False  # moorage.toml names a database, which its client creates
    parts: tuple[tuple[str, str], ...] = ()  # variables with templates, such as `{host}`, that a linked database fills
    migrate: str = ""  # command that creates the tables of an empty database
    migrates_in_build: bool = False  # the build command needs that database: by its scripts, or by its failure
    uses_sqlite: bool = False  # without DATABASE_URL the app has a SQLite file, which is empty at each start
    image: str = ""  # digest of the manifest of a stored image, which runs instead of a folder
    assets: Assets | None = None  # built before the app


@dataclass(frozen=True, slots=True)
class Built:
    plan: Plan
    folder: Path  # to publish; below the source, with regular files and folders only. Not used for an image.


@dataclass(frozen=True, slots=True)
class StoredBuild:
    """Result of a build in the artifact store, held by the owner of the request."""

    plan: Plan
    digest: str  # of an archive, or of the manifest of an image
    files: int  # 0 for an image


@dataclass(frozen=True, slots=True)
class BuildDatabases:
    """Databases that the commands of a build may use."""

    env: Mapping[str, str] = field(default_factory=dict)  # addresses and their parts; variables of the user come first
    egress: tuple[str, ...] = ()  # "address:port" of the servers, as seen from this machine


class Source(Protocol):
    """Repository that an engine builds, in folders that the engine chooses."""

    async def fetch(self, target: Path) -> None:
        """Write the files of a commit into an empty folder. An exception ends the build and reaches its caller."""
        ...

    async def check(self, plan: Plan, folder: Path) -> None:
        """Raise an exception if the files that were built must not be stored. Not called for an image."""
        ...

    async def databases(self, plan: Plan) -> BuildDatabases:
        """Return the databases of the repository's owner, and create the one that the build itself needs."""
        ...


class Builds(Protocol):
    async def build(self, request: BuildRequest, source: Source, sink: Sink) -> StoredBuild:
        """Fetch a repository, build it and store the result; raises BuildFailed. Cancellation ends the build."""
        ...

    async def clear_up(self) -> None:
        """Delete the files of builds that ended with their process; called before the first build."""
        ...
