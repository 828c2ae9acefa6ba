"""Installs the dependencies of functions with npm or pip in the build sandbox.

An install runs at deployment, never on a request. Results are cached per organization, so a deployment that changes
only code is fast. pip never has access to the upload: it runs isolated, in a folder with only the requirement files.
npm has access to the upload only if scripts may run, and such a result is never cached.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import stat
from collections.abc import AsyncIterator
from pathlib import Path

from moorage.core import disk
from moorage.core.kit import folders
from moorage.core.kit.records import dataclass
from moorage.errors import DiskFull
from moorage.products.functions.dependencies import inputs as install_inputs
from moorage.products.functions.dependencies.cache import InstallCache
from moorage.products.functions.dependencies.failures import InstallFailed
from moorage.products.functions.dependencies.inputs import Inputs
from moorage.runtime.builds import system_packages
from moorage.runtime.sandbox.runs import main as sandbox
from moorage.runtime.workers import toolchain, zygotes
from moorage.runtime.workers.runtimes import Runtime, installed
from moorage.settings import Settings

MAX_CONCURRENT_INSTALLS = 2
TAIL_LINES = 30
TAIL_BYTES = 3000
BUILD_UIDS = 190_000  # first user id of builds
TIMEOUT_S = 300.0
MB = 2**20
DISK_MB = 1024  # A package with its dependencies may have 256 MB; npm and pip need more while they run.
UPLOAD = "upload"  # folder of the input files, below the work folder


@dataclass(frozen=True, slots=True)
class _Plan:
    """Inputs and folders of an install."""

    inputs: Inputs | None  # None: the upload itself is modified in place
    work: Path
    result: Path

    @property
    def cwd(self) -> str:
        return UPLOAD if self.inputs is not None else ""


class SandboxInstaller:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._cache = InstallCache(settings)
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_INSTALLS)
        self._free_uids = list(range(BUILD_UIDS, BUILD_UIDS + MAX_CONCURRENT_INSTALLS))

    async def install(self, org_id: int, folder: Path, runtime: str) -> None:
        """Install the dependencies of a package; raises InstallFailed or DiskFull.

        It may run again in a new folder.
        """
        installed_runtime = installed().get(runtime)
        if installed_runtime is None:
            raise InstallFailed(f"{runtime} is not installed here any more")
        target = folder / ("node_modules" if installed_runtime.language == "nodejs" else "packages")
        if os.path.lexists(target):
            raise InstallFailed(f"the package has a file {target.name} where its dependencies belong")
        disk.check_room(folder, 0, self._settings.disk_reserve_mb)
        find_inputs = install_inputs.of_node if installed_runtime.language == "nodejs" else install_inputs.of_python
        inputs = await asyncio.to_thread(find_inputs, folder)
        key = None
        if inputs is not None and inputs.is_fixed:
            key = await asyncio.to_thread(inputs.key, folder, org_id, runtime, toolchain.environment())
        if key is not None and await asyncio.to_thread(self._cache.take, key, target):
            return
        async with _planned(folder, target, inputs) as plan, self._slots:
            await self._run(plan, folder, installed_runtime)
            if plan.inputs is not None and _is_folder(plan.result):
                plan.result.chmod(0o755)  # A rename by a non-root user needs write permission on the folder.
                plan.result.rename(target)
        if key is not None and _is_folder(target):
            await asyncio.to_thread(self._cache.keep, key, target)

    async def _run(self, plan: _Plan, folder: Path, runtime: Runtime) -> None:
        uid = self._free_uids.pop()
        try:
            if plan.inputs is not None:
                await asyncio.to_thread(plan.inputs.copy, folder, plan.work / UPLOAD)
            result = await self._run_as(plan, runtime, uid)
        finally:
            self._free_uids.append(uid)
        if result.code == sandbox.NO_ROOM:
            raise DiskFull
        if result.code != 0:
            why = result.why or system_packages.explain_certificate(result.output)
            raise InstallFailed(tail(result.output) + (f"\n({why})" if why else ""))

    async def _run_as(self, plan: _Plan, runtime: Runtime, uid: int) -> sandbox.Finished:
        if os.getuid() != 0:
            return await sandbox.run(self._job(plan, runtime, 0))
        await asyncio.to_thread(folders.change_owner, plan.work, uid)
        try:
            return await sandbox.run(self._job(plan, runtime, uid))
        finally:
            await asyncio.to_thread(folders.change_owner, plan.work, 0)

    def _job(self, plan: _Plan, runtime: Runtime, uid: int) -> sandbox.Job:
        settings = self._settings
        binds = zygotes.binds({runtime.name: runtime})
        env = {**toolchain.environment(), "HOME": "/tmp"}  # noqa: S108
        if authorities := toolchain.installer_authorities(settings.extra_ca):
            binds[toolchain.AUTHORITIES] = authorities
            env |= toolchain.trusting(toolchain.AUTHORITIES)
        argv = _npm(plan, runtime, binds, env) if runtime.language == "nodejs" else _pip(runtime, binds, env)
        return sandbox.Job(
            argv=argv,
            work=str(plan.work),
            cwd=plan.cwd,
            env=env,
            binds=binds,
            uid=uid,
            timeout_s=TIMEOUT_S,
            disk_mb=DISK_MB,
            reserve_mb=settings.disk_reserve_mb,
            allow=list(settings.sandbox_allow),
            block=list(settings.sandbox_block),
        )


@contextlib.asynccontextmanager
async def _planned(folder: Path, target: Path, inputs: Inputs | None) -> AsyncIterator[_Plan]:
    """Yield the plan of an install with its work folder.

    The work folder is the upload, or a temporary folder on the same file system.
    """
    if inputs is None:
        yield _Plan(None, folder, target)
        return
    work = folder.parent / f".install-{secrets.token_hex(8)}"
    (work / UPLOAD).mkdir(parents=True, mode=0o755)
    try:
        yield _Plan(inputs, work, work / UPLOAD / target.name if target.name == "node_modules" else work / target.name)
    finally:
        await asyncio.to_thread(folders.remove, work)


def _is_folder(path: Path) -> bool:
    """Return whether a path is a folder; a script may leave a link to a host folder."""
    return os.path.lexists(path) and stat.S_ISDIR(path.lstat().st_mode)


def _npm(plan: _Plan, runtime: Runtime, binds: dict[str, str], env: dict[str, str]) -> list[str]:
    """Return the npm command: `npm ci` if there is a lock file, else `npm install`."""
    folder = plan.work / plan.cwd
    has_lock = any((folder / name).is_file() for name in install_inputs.NPM_LOCKS)
    binds[toolchain.NPM] = str(toolchain.npm_folder(runtime))
    env["npm_config_cache"] = "/tmp/npm"  # noqa: S108
    # A function's package contains only regular files, so npm must not create links to programs.
    flags = ["--omit=dev", "--no-audit", "--no-fund", "--no-bin-links", "--loglevel=error"]
    if plan.inputs is not None:
        # The lock file declares no install script. A package with an undeclared one must not fill the cache.
        flags.append("--ignore-scripts")
    node = zygotes.inside(runtime)
    env["PATH"] = f"{Path(node).parent}:{env['PATH']}"
    return [node, f"{toolchain.NPM}/bin/npm-cli.js", "ci" if has_lock else "install", *flags]


def _pip(runtime: Runtime, binds: dict[str, str], env: dict[str, str]) -> list[str]:
    """Return the pip command; only wheels, because a source build runs foreign code.

    Python starts isolated, so neither the current folder nor a variable adds modules; pip is started by its path.
    """
    pip = toolchain.find_pip()
    if pip is None:
        raise InstallFailed("pip is not installed on this machine")
    binds[str(Path(toolchain.PIP, pip[0]))] = str(pip[1])
    env["PIP_CONFIG_FILE"] = os.devnull
    # An unpacked pip is started by its `__main__.py`; in an archive the package itself can be started.
    program = f"{toolchain.PIP}/pip/__main__.py" if pip[0] else f"{toolchain.PIP}/pip"
    flags = [
        "--only-binary=:all:",
        "--no-input",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--no-warn-conflicts",
    ]
    target = ["--target", f"{sandbox.WORK}/packages", "-r", install_inputs.REQUIREMENTS]
    return [str(runtime.executable), "-I", program, "install", *flags, *target]


def tail(output: str) -> str:
    """Return the end of an installer's output, without the paths of the sandbox."""
    lines = output.strip().splitlines()[-TAIL_LINES:]
    text = "\n".join(lines)[-TAIL_BYTES:]
    return text.replace(f"{sandbox.WORK}/{UPLOAD}/", "").replace(f"{sandbox.WORK}/", "")
