"""What one run in a sandbox is: the program, what it gets, what it may use up, and how it can end."""

from __future__ import annotations

from dataclasses import dataclass, field

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
    """What is run, with what, and how much it may take."""

    argv: list[str]
    work: str  # the folder outside that is WORK inside, to be written to; "" where `binds` has what is there
    cwd: str = ""  # where it starts, below the work folder
    env: dict[str, str] = field(default_factory=dict)
    binds: dict[str, str] = field(default_factory=dict)  # read-only: path inside -> path outside
    writable: dict[str, str] = field(default_factory=dict)  # the same, to be written to; "/tmp" may be among them
    uid: int = 0  # the user it runs as, where we are root
    weight: int = 50  # of processor and disk, where the platform's own is 1000
    memory_mb: int = 1024
    pids: int = 256
    file_mb: int = 512
    tmp_mb: int = 256
    disk_mb: int = 0  # what all folders it may write to can hold together; 0 for no limit
    reserve_mb: int = 0  # it is ended when less than this is left on the disk
    timeout_s: float = 300.0
    output_bytes: int = 4 * 2**20
    network: bool = True
    allow: list[str] = field(default_factory=list)
    block: list[str] = field(default_factory=list)
    doors: list[str] = field(default_factory=list)  # "address:port" of this machine that it may connect to
    is_apart: bool = False  # standard error is a stream of its own
    is_boxed: bool = True  # False runs it with our own rights, on the machine as it is

    def open_folders(self) -> dict[str, str]:
        """Return what can be written to: path inside -> path outside."""
        return {**({WORK: self.work} if self.work else {}), **self.writable}

    def reason(self, code: int) -> str | None:
        """Say what the sandbox had to do, or None where the program ended by itself."""
        limits = {OUT_OF_MEMORY: self.memory_mb, TOO_MUCH_DISK: self.disk_mb}
        text = REASONS.get(code)
        return f"{text} ({limits[code]} MB)" if code in limits else text


@dataclass(frozen=True)
class Finished:
    """How a run ended. A code that stands for a reason may be the program's own, unless the runner said which."""

    code: int
    output: str
    reason: str | None = None
    is_told: bool = False  # the runner has said the reason, or that there is none

    @property
    def why(self) -> str | None:
        """Say what the sandbox had to do, or None where the program ended by itself."""
        return self.reason if self.is_told else REASONS.get(self.code)
