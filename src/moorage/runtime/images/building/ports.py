"""Request, limits, log and result of an image build."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal

from moorage.core.kit.records import dataclass
from moorage.runtime.images.dockerfile.errors import DockerfileError
from moorage.runtime.sandbox.runs.job import Finished

Say = Callable[[str], None]
Output = Callable[[Literal["stdout", "stderr"], bytes], None]


class StepFailed(DockerfileError):
    """A RUN instruction failed; `output` is the end of its output."""

    def __init__(self, line: int, what: str, finished: Finished, output: str) -> None:
        super().__init__(line, f"{what} failed")
        self.finished = finished
        self.output = output


@dataclass(frozen=True, slots=True)
class ImageRequest:
    org_id: int
    owner: str  # holds the references to the finished image
    cache: str  # name of the layer cache
    source: Path  # checked-out repository
    dockerfile: str  # path below the repository
    context: str  # folder below the repository; "" is the repository
    text: str  # of the Dockerfile
    args: Mapping[str, str] = field(default_factory=dict)
    target: str = ""  # stage to build; "" for the last one
    secrets: Mapping[str, str] = field(default_factory=dict)
    use_caches: bool = True
    has_credentials: bool = True  # whether pulls use the credentials of the organization's registries


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one RUN instruction, and its network policy."""

    memory_mb: int = 2048
    pids: int = 1024
    file_mb: int = 1024
    disk_mb: int = 10 * 1024
    reserve_mb: int = 0
    output_bytes: int = 32 * 2**20
    files: int = 500_000  # of one layer
    allow: Sequence[str] = ()
    block: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Workspace:
    """Folders and ids that a build holds."""

    scratch: Path  # empty, mode 0700, removed by the caller
    mounts: Path | None  # cache mounts of the project; None if another build uses them
    first_id: int  # of the range of ids of RUN, if the platform runs as root
    deadline: float  # time.monotonic()
    say: Say
    output: Output
    env: Mapping[str, str] = field(default_factory=dict)  # of RUN, in no image: the operator's package index and proxy
    binds: Mapping[str, str] = field(default_factory=dict)  # of RUN, read-only: path inside -> path outside
    maps_ids: bool = True  # see ImageRoot


@dataclass(frozen=True, slots=True)
class Layer:
    """A stored layer."""

    digest: str  # of the blob, with its algorithm
    size: int
    media_type: str
    diff_id: str  # digest of the uncompressed archive


@dataclass(frozen=True, slots=True)
class BuiltImage:
    digest: str  # of the manifest
    layers: tuple[Layer, ...]
    size: int  # bytes of all layers
    cached_steps: int
    steps: int
