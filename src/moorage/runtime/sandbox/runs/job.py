"""Description of a run in a sandbox: program, environment, limits; and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from moorage.core.kit.records import dataclass
from moorage.runtime.sandbox.rootfs import spec
from moorage.runtime.sandbox.rootfs.spec import ImageRoot

WORK = "/work"
NO_ROOM = 121
TOO_MUCH_DISK = 122
OUT_OF_MEMORY = 123
TIMED_OUT = 124
TOO_MUCH_OUTPUT = 125
NO_SANDBOX = 126
REASONS = {
    NO_ROOM: "the disk of this machine is nearly full",
    TOO_MUCH_DISK: "it wrote too much to the disk",
    OUT_OF_MEMORY: "it ran out of memory",
    TIMED_OUT: "it took too long",
    TOO_MUCH_OUTPUT: "it printed too much",
    NO_SANDBOX: "no sandbox",
}


@dataclass(frozen=True)
class Job:
    """Program, environment and limits of a run; sent to the runner by field name."""

    argv: list[str]
    work: str  # folder outside, mounted writable at WORK; "" if `binds` has an entry for WORK
    cwd: str = ""  # working directory, below WORK
    env: dict[str, str] = field(default_factory=dict)
    binds: dict[str, str] = field(default_factory=dict)  # read-only bind mounts: path inside -> path outside
    writable: dict[str, str] = field(default_factory=dict)  # writable bind mounts; may include "/tmp"
    uid: int = 0  # user of the program, if the platform runs as root
    weight: int = 50  # CPU and disk weight; the platform's is 1000
    memory_mb: int = 1024
    pids: int = 256
    file_mb: int = 512
    tmp_mb: int = 256
    disk_mb: int = 0  # size limit of all writable folders together; 0 for none
    reserve_mb: int = 0  # the run is killed when the disk has less free space
    timeout_s: float = 300.0
    output_bytes: int = 4 * 2**20
    network: bool = True
    allow: list[str] = field(default_factory=list)
    block: list[str] = field(default_factory=list)
    doors: list[str] = field(default_factory=list)  # egress rules: "address:port" of this machine
    # Writable root of an image instead of the system's files. `work` is "" then, `cwd` is a path of the image, and the
    # folders of `binds` and `writable` have ids of the image, or an owner that becomes the user of the image.
    root: ImageRoot | None = None
    is_apart: bool = False  # Return standard error as its own stream.
    stdin: int | None = None  # inherited descriptor of a pipe or a file that is standard input; None for none
    is_boxed: bool = True  # False runs the program without a sandbox, with the platform's own rights.

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Job:
        """Return the job that `dataclasses.asdict` made a document of."""
        root = document.get("root")
        return cls(**{**document, "root": spec.read(root) if root else None})

    def measured_folders(self) -> list[str]:
        """Return the folders outside whose size the job's disk limit bounds."""
        upper = [self.root.upper] if self.root and self.root.upper else []
        return [*self.open_folders().values(), *upper]

    def open_folders(self) -> dict[str, str]:
        """Return the writable folders: path inside -> path outside."""
        return {**({WORK: self.work} if self.work else {}), **self.writable}

    def reason(self, code: int) -> str | None:
        """Return the reason for which the runner uses this code, or None."""
        limits = {OUT_OF_MEMORY: self.memory_mb, TOO_MUCH_DISK: self.disk_mb}
        text = REASONS.get(code)
        return f"{text} ({limits[code]} MB)" if code in limits else text


@dataclass(frozen=True)
class Finished:
    """Result of a run."""

    code: int
    output: str
    reason: str | None = None
    is_reported: bool = (
        False  # The runner sent `reason`, or None. Otherwise a code in REASONS may be the program's own.
    )

    @property
    def why(self) -> str | None:
        """The reason for which the runner ended the program, or None."""
        return self.reason if self.is_reported else REASONS.get(self.code)
