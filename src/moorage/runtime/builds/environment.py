"""Tools, folders and environment variables of a build's commands.

`Layout` has the paths as the commands see them, inside or outside of a sandbox; `BuildPaths` has those of the machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from moorage.core.kit.records import dataclass
from moorage.runtime.builds.ports import BuildFailed
from moorage.runtime.builds.toolchain import tools
from moorage.runtime.sandbox.runs.job import WORK, Job
from moorage.runtime.workers import toolchain
from moorage.runtime.workers.runtimes import Runtime
from moorage.settings import Settings

CACHE = "/cache"
UV = "/opt/moorage/uv"
GO = "/opt/moorage/go"
JEKYLL = "/opt/moorage/jekyll"
# Headers and pkg-config files of the machine, for native modules.
DEVELOPMENT = ("/usr/include", "/usr/share/pkgconfig")
TMP = "/tmp"  # noqa: S108
MAX_PIDS = 1024
MAX_COMPILERS = 4  # at once; each takes up to 400 MB
PNPM_STORE = ("npm_config_store_dir", "pnpm_config_store_dir")
MAX_FILE_MB = 1024
MAX_DISK_MB = 10 * 1024
MAX_OUTPUT_BYTES = 32 * 2**20
# Disables prompts and telemetry of build tools.
NON_INTERACTIVE = {
    "CI": "true",
    "NEXT_TELEMETRY_DISABLED": "1",
    "GATSBY_TELEMETRY_DISABLED": "1",
    "ASTRO_TELEMETRY_DISABLED": "1",
    "NUXT_TELEMETRY_DISABLED": "1",
    "YARN_ENABLE_TELEMETRY": "0",
    "NG_CLI_ANALYTICS": "false",
    "TURBO_TELEMETRY_DISABLED": "1",
    "TURBO_ENV_MODE": "loose",  # Otherwise tasks get only the variables that turbo.json names.
    "TURBO_DANGEROUSLY_DISABLE_PACKAGE_MANAGER_CHECK": "true",  # Otherwise `packageManager` has to be set.
    "NX_DAEMON": "false",
    "NX_NO_CLOUD": "true",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PYTHONUNBUFFERED": "1",
}
# Browsers and servers of test tools, which no build starts: hundreds of megabytes, from hosts of their own. A download
# that fails makes the whole installation start again.
WITHOUT_TEST_TOOLS = {
    "CYPRESS_INSTALL_BINARY": "0",
    "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1",
    "CHROMEDRIVER_SKIP_DOWNLOAD": "true",
    "GECKODRIVER_SKIP_DOWNLOAD": "true",
    "ELECTRON_SKIP_BINARY_DOWNLOAD": "1",
    "MONGOMS_DISABLE_POSTINSTALL": "1",
    "REDISMS_DISABLE_POSTINSTALL": "1",
}
# Time limits of package managers, for slow lines: most end an installation after 15 to 60 s without data.
PATIENT = {
    "npm_config_fetch_retries": "4",
    "npm_config_fetch_timeout": "300000",
    "YARN_HTTP_TIMEOUT": "300000",
    "PIP_DEFAULT_TIMEOUT": "60",
    "UV_HTTP_TIMEOUT": "120",
}
# Variables of uv that have the values of pip's, unless the user sets them.
_UV_FROM_PIP = {
    "UV_DEFAULT_INDEX": "PIP_INDEX_URL",
    "UV_EXTRA_INDEX_URL": "PIP_EXTRA_INDEX_URL",
    "UV_FIND_LINKS": "PIP_FIND_LINKS",
    "UV_INSECURE_HOST": "PIP_TRUSTED_HOST",
}


@dataclass(frozen=True)
class Layout:
    """Paths as the commands of a build see them."""

    base: str
    cache: str
    tmp: str
    bin: str
    node: str
    python: str
    pip: str  # for PYTHONPATH
    uv: str = ""  # "": it cannot be fetched
    root: str = ""  # of the workspace; "" without one


@dataclass(frozen=True, slots=True)
class Retry:
    """Another command for a step that failed in a known way."""

    pattern: re.Pattern[str]  # of the failed command's output
    note: str  # for the log: why, and how to avoid the second attempt
    what: str
    argv: list[str] = field(default_factory=list)  # in place of the command; empty with `prepare`
    files: Callable[[str], dict[str, str]] | None = None  # made from that output, in the folder of programs
    more: tuple[Retry, ...] = ()  # of this command, before the other ones of its step
    prepare: str = ""  # shell commands that run before a shell command, those of earlier retries included


@dataclass(frozen=True)
class Step:
    """One command of a build."""

    what: str  # name for messages, such as "npm ci"
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()  # variables of the user that the command must not get
    is_optional: bool = False  # a failure is logged and does not fail the build
    is_quiet: bool = False  # not shown in the log
    is_cached: bool = False  # installs dependencies; skipped if a cache has the result
    folder: str | None = None  # where it runs, below the repository; None for the base folder
    retries: tuple[Retry, ...] = ()  # the first whose pattern matches is run, once each


@dataclass(frozen=True)
class BuildPaths:
    """Folders of one build on this machine."""

    source: Path
    base: str
    cache: Path
    scratch: Path
    root: str | None = None  # of the workspace, below the source

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


class BuildEnvironment:
    def __init__(
        self,
        settings: Settings,
        *,
        is_sandboxed: bool,
        python: Runtime | None = None,  # None: the default of this machine
        node: Runtime | None = None,
        uv: Path | None = None,  # folders of downloaded toolchains
        go: Path | None = None,
        jekyll: Path | None = None,
        node_options: str = "",
        has_pnpm: bool = False,
        has_own_gyp: bool = False,  # a package brings a node-gyp of its own
    ) -> None:
        self._settings = settings
        self._is_sandboxed = is_sandboxed
        self._tools = tools.find_tools(is_sandboxed=is_sandboxed, python=python, node=node)
        self._uv = uv
        self._go = go
        self._jekyll = jekyll
        self._has_pnpm = has_pnpm
        self._has_own_gyp = has_own_gyp or has_pnpm
        # By default Node sizes its heap by the machine's memory, and would be killed before it collects garbage.
        self._node_options = f"--max-old-space-size={settings.build_memory_mb * 3 // 4} {node_options}".strip()

    @property
    def _go_root(self) -> str:
        return GO if self._is_sandboxed else str(self._go)

    def layout(self, paths: BuildPaths) -> Layout:
        pip = toolchain.find_pip()
        if pip is None:
            raise BuildFailed("pip is not installed on this machine")
        if not self._is_sandboxed:
            return Layout(
                base=str(paths.source / paths.base),
                cache=str(paths.cache),
                tmp=str(paths.tmp),
                bin=str(paths.bin),
                node=self._tools.node,
                python=self._tools.python,
                pip=str(paths.pip if pip[0] else paths.pip / "pip.whl"),
                uv=str(self._uv / "uv") if self._uv else "",
                root="" if paths.root is None else str(paths.source / paths.root),
            )
        return Layout(
            base=str(Path(WORK, paths.base)),
            cache=CACHE,
            tmp=TMP,
            bin=tools.BIN,
            node=self._tools.node,
            python=self._tools.python,
            pip=toolchain.PIP,
            uv=f"{UV}/uv" if self._uv else "",
            root="" if paths.root is None else str(Path(WORK, paths.root)),
        )

    def identity(self, user_env: Mapping[str, str]) -> list[object]:
        """Return the inputs of installations other than their commands and files."""
        runtimes = (self._tools.python_runtime.executable, self._tools.node_runtime.executable)
        stats = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in runtimes]
        return [stats, str(self._uv), sorted(toolchain.environment().items()), sorted(user_env.items())]

    def write_tools(self, paths: BuildPaths) -> None:
        """Write the wrapper scripts of npm, python and other tools."""
        self._tools.write(paths.bin)
        if self._go is not None:
            tools.write_wrapper(paths.bin / "go", f"{self._go_root}/bin/go")
        if self._jekyll is not None:
            place = JEKYLL if self._is_sandboxed else str(self._jekyll)
            tools.write_wrapper(paths.bin / "jekyll", f"{place}/bin/jekyll")
        if not self._is_sandboxed and (pip := toolchain.find_pip()) is not None:
            # In a folder of its own, because pip's folder also has the platform's packages.
            (paths.pip / (pip[0] or "pip.whl")).symlink_to(pip[1])

    def job(self, paths: BuildPaths, step: Step, user_env: Mapping[str, str], *, uid: int, timeout_s: float) -> Job:
        """Return the sandbox job of a step."""
        layout, settings = self.layout(paths), self._settings
        authorities = toolchain.installer_authorities(settings.extra_ca)
        trusted = toolchain.AUTHORITIES if self._is_sandboxed else authorities
        own = {name: value for name, value in user_env.items() if name not in step.without}
        env = self._environment(layout) | (toolchain.trusting(trusted) if authorities and trusted else {})
        path = path_of((layout.base, layout.root), layout.bin, layout.node, own.get("PATH"))
        env |= {**own, "PATH": path, **step.env}
        env |= {name: env[other] for name, other in _UV_FROM_PIP.items() if other in env and name not in env}
        return Job(
            argv=step.argv,
            work=str(paths.source),
            cwd=paths.base if step.folder is None else step.folder,
            env=env,
            binds=self._binds(paths, authorities) if self._is_sandboxed else {},
            writable={CACHE: str(paths.cache), TMP: str(paths.tmp)},
            uid=uid,
            memory_mb=settings.build_memory_mb,
            pids=MAX_PIDS,
            file_mb=MAX_FILE_MB,
            disk_mb=MAX_DISK_MB,
            reserve_mb=settings.disk_reserve_mb,
            timeout_s=timeout_s,
            output_bytes=MAX_OUTPUT_BYTES,
            allow=list(settings.sandbox_allow),
            block=list(settings.sandbox_block),
            is_boxed=self._is_sandboxed,
        )

    def _binds(self, paths: BuildPaths, authorities: str | None) -> dict[str, str]:
        binds = self._tools.binds(paths.bin)
        if (pip := toolchain.find_pip()) is not None:
            binds[str(Path(toolchain.PIP, pip[0]))] = str(pip[1])
        binds |= {path: path for path in DEVELOPMENT if os.path.isdir(path)}
        own = ((UV, self._uv), (GO, self._go), (JEKYLL, self._jekyll))
        binds |= {inside: str(path) for inside, path in own if path is not None}
        return binds | ({toolchain.AUTHORITIES: authorities} if authorities else {})

    @property
    def _node_headers(self) -> str:
        return next(iter(self._tools.node_headers.values()), "")

    def _environment(self, layout: Layout) -> dict[str, str]:
        env = toolchain.environment() | NON_INTERACTIVE | PATIENT
        registry = env.get("npm_config_registry") or env.get("NPM_CONFIG_REGISTRY")
        return env | {
            "HOME": layout.tmp,
            "TMPDIR": layout.tmp,
            "NODE_OPTIONS": self._node_options,
            "npm_config_cache": f"{layout.cache}/npm",
            # An `npm install` of a build tool with NODE_ENV=production would remove the development dependencies.
            "npm_config_include": "dev",
            **WITHOUT_TEST_TOOLS,
            "YARN_CACHE_FOLDER": f"{layout.cache}/yarn",
            "YARN_GLOBAL_FOLDER": f"{layout.cache}/yarn",
            "BUN_INSTALL_CACHE_DIR": f"{layout.cache}/bun",
            "YARN_NODE_LINKER": "node-modules",
            "PIP_CACHE_DIR": f"{layout.cache}/pip",
            "UV_CACHE_DIR": f"{layout.cache}/uv",
            "UV_LINK_MODE": "copy",
            "UV_NO_MANAGED_PYTHON": "1",  # The platform alone chooses and fetches versions of Python.
            "UV_NO_PROGRESS": "1",
            "UV_SYSTEM_CERTS": "1",
            "UV_INDEX_STRATEGY": "unsafe-best-match",  # as pip does
            **self._tools.node_headers,
            "JOBS": str(min(os.cpu_count() or 1, MAX_COMPILERS)),  # of node-gyp, which has one by default
            "GOCACHE": f"{layout.cache}/go-build",
            "GOPATH": f"{layout.cache}/go",
            "GOTOOLCHAIN": "local",
            "GOFLAGS": "-buildvcs=false",  # The repository belongs to another user, which git refuses.
            "CGO_ENABLED": "0",
            **({"GOROOT": self._go_root} if self._go is not None else {}),
            **({"YARN_NPM_REGISTRY_SERVER": registry} if registry else {}),
            # The second name is that of newer versions. npm warns of names that it does not know.
            **(dict.fromkeys(PNPM_STORE, f"{layout.cache}/pnpm") if self._has_pnpm else {}),
            # pnpm removes variables `npm_package_*` from the environment of install scripts, and versions of node-gyp
            # before 10 know only this one.
            **({"npm_config_nodedir": path} if self._has_own_gyp and (path := self._node_headers) else {}),
        }


def path_of(bases: Sequence[str], programs: str, node: str, user_path: str | None) -> str:
    """Return the PATH of commands; the programs of the app and its workspace come first."""
    own = [
        f"{base}/{folder}"
        for base in dict.fromkeys(filter(None, bases))
        for folder in ("node_modules/.bin", ".venv/bin")
    ]
    return ":".join(
        [*own, programs, str(Path(node).parent), *([user_path] if user_path else []), toolchain.SYSTEM_PATH]
    )
