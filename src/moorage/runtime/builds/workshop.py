"""Where a build takes place: the tools, folders and environment that its commands find, inside a sandbox or without.

Commands are made for a layout, which says where things are as they see them; a job is made for the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.runtime.builds import tools
from moorage.runtime.builds.detection.detect import GO_PATH
from moorage.runtime.builds.ports import BuildFailed
from moorage.runtime.sandbox.runs.job import WORK, Job
from moorage.runtime.workers import toolchain
from moorage.settings import Settings

CACHE = "/cache"
TMP = "/tmp"  # noqa: S108
PIDS = 1024
FILE_MB = 1024
DISK_MB = 10 * 1024
OUTPUT_BYTES = 32 * 2**20
# A build that nobody watches may not ask questions, nor report home.
QUIET = {
    "CI": "true",
    "NEXT_TELEMETRY_DISABLED": "1",
    "GATSBY_TELEMETRY_DISABLED": "1",
    "ASTRO_TELEMETRY_DISABLED": "1",
    "NUXT_TELEMETRY_DISABLED": "1",
    "YARN_ENABLE_TELEMETRY": "0",
    "NG_CLI_ANALYTICS": "false",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True)
class Layout:
    """Where things are, as the commands of a build see them."""

    base: str
    cache: str
    tmp: str
    bin: str
    node: str
    python: str
    pip: str  # for PYTHONPATH


@dataclass(frozen=True)
class Step:
    """One command of a build."""

    what: str  # names it in a sentence, such as "npm ci"
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()  # variables of the user that would mislead it
    is_optional: bool = False  # where it fails, that is a line in the log and no more
    is_quiet: bool = False  # nobody has to read of it


@dataclass(frozen=True)
class Room:
    """The folders of one build on this machine."""

    source: Path
    base: str
    cache: Path
    scratch: Path

    @property
    def tmp(self) -> Path:
        return self.scratch / "tmp"

    @property
    def bin(self) -> Path:
        return self.scratch / "bin"

    @property
    def pip(self) -> Path:
        return self.scratch / "pip"

    def make(self) -> None:
        for folder in (self.scratch, self.tmp, self.bin, self.pip):
            folder.mkdir(parents=True, mode=0o755)
        self.tmp.chmod(0o700)


class Workshop:
    def __init__(self, settings: Settings, *, is_sandboxed: bool) -> None:
        self._settings = settings
        self._is_sandboxed = is_sandboxed
        self._tools = tools.find_tools(is_sandboxed=is_sandboxed)

    def layout(self, room: Room) -> Layout:
        pip = toolchain.find_pip()
        if pip is None:
            raise BuildFailed("pip is not installed on this machine")
        if not self._is_sandboxed:
            return Layout(
                base=str(room.source / room.base),
                cache=str(room.cache),
                tmp=str(room.tmp),
                bin=str(room.bin),
                node=self._tools.node,
                python=self._tools.python,
                pip=str(room.pip if pip[0] else room.pip / "pip.whl"),
            )
        return Layout(
            base=str(Path(WORK, room.base)),
            cache=CACHE,
            tmp=TMP,
            bin=tools.BIN,
            node=self._tools.node,
            python=self._tools.python,
            pip=toolchain.PIP,
        )

    def write_tools(self, room: Room) -> None:
        """Write the programs that commands call by name."""
        self._tools.write(room.bin)
        if not self._is_sandboxed and (pip := toolchain.find_pip()) is not None:
            # Alone in its folder: beside it stand the platform's own packages, which no app has installed.
            (room.pip / (pip[0] or "pip.whl")).symlink_to(pip[1])

    def job(self, room: Room, step: Step, given: Mapping[str, str], *, uid: int, timeout_s: float) -> Job:
        """Return what is run for a step."""
        layout, settings = self.layout(room), self._settings
        file = toolchain.authorities(settings.extra_ca)
        trusted = toolchain.AUTHORITIES if self._is_sandboxed else file
        own = {name: value for name, value in given.items() if name not in step.without}
        env = self._environment(layout) | (toolchain.trusting(trusted) if file and trusted else {})
        env |= {**own, "PATH": path_of(layout.base, layout.bin, layout.node, own.get("PATH")), **step.env}
        return Job(
            argv=step.argv,
            work=str(room.source),
            cwd=room.base,
            env=env,
            binds=self._binds(room, file) if self._is_sandboxed else {},
            writable={CACHE: str(room.cache), TMP: str(room.tmp)},
            uid=uid,
            memory_mb=settings.build_memory_mb,
            pids=PIDS,
            file_mb=FILE_MB,
            disk_mb=DISK_MB,
            reserve_mb=settings.disk_reserve_mb,
            timeout_s=timeout_s,
            output_bytes=OUTPUT_BYTES,
            allow=list(settings.sandbox_allow),
            block=list(settings.sandbox_block),
            is_boxed=self._is_sandboxed,
        )

    def _binds(self, room: Room, authorities: str | None) -> dict[str, str]:
        binds = self._tools.binds(room.bin)
        if (pip := toolchain.find_pip()) is not None:
            binds[str(Path(toolchain.PIP, pip[0]))] = str(pip[1])
        return binds | ({toolchain.AUTHORITIES: authorities} if authorities else {})

    def _environment(self, layout: Layout) -> dict[str, str]:
        env = toolchain.environment() | QUIET
        registry = env.get("npm_config_registry") or env.get("NPM_CONFIG_REGISTRY")
        index = env.get("PIP_INDEX_URL")
        return env | {
            "HOME": layout.tmp,
            "TMPDIR": layout.tmp,
            # Node would go by the machine's memory, and be killed before it cleans up after itself.
            "NODE_OPTIONS": f"--max-old-space-size={self._settings.build_memory_mb * 3 // 4}",
            "npm_config_cache": f"{layout.cache}/npm",
            "YARN_CACHE_FOLDER": f"{layout.cache}/yarn",
            "YARN_GLOBAL_FOLDER": f"{layout.cache}/yarn",
            "YARN_NODE_LINKER": "node-modules",
            "PIP_CACHE_DIR": f"{layout.cache}/pip",
            "UV_CACHE_DIR": f"{layout.cache}/uv",
            "UV_LINK_MODE": "copy",
            "GOCACHE": f"{layout.cache}/go-build",
            "GOMODCACHE": f"{layout.cache}/go-mod",
            **({"YARN_NPM_REGISTRY_SERVER": registry} if registry else {}),
            **({"UV_DEFAULT_INDEX": index} if index else {}),
        }


def path_of(base: str, programs: str, node: str, given: str | None) -> str:
    """Return where commands are looked for: the app's own come first."""
    own = [f"{base}/node_modules/.bin", f"{base}/.venv/bin", programs, str(Path(node).parent)]
    return ":".join([*own, *([given] if given else []), GO_PATH])
