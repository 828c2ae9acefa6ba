"""Installing the dependencies of functions, when they are deployed: `npm ci` or `pip`, in the build sandbox.

Nothing is installed on a request. What was installed for a lock file is kept and used again, so a deployment that
changes only code is quick, and gets the same dependencies.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
import shutil
import time
from pathlib import Path

from moorage.cells import toolchain, zygotes
from moorage.cells.runtimes import Runtime, installed
from moorage.functions.failures import InstallFailed
from moorage.kit import folders
from moorage.sandbox import run as sandbox
from moorage.settings import Settings

AT_ONCE = 2
TAIL_LINES = 30
TAIL_BYTES = 3000
KEPT_BYTES = 2 * 2**30
BUILD_UIDS = 190_000  # first of the user ids that builds run under
TIMEOUT_S = 300.0
_KEY = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{16}")  # kept, or about to be
_PINNED = re.compile(r"\s*[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])?\s*==[^*,]+\Z")


class SandboxInstaller:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._kept = settings.folder("build-cache")
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._free_uids = list(range(BUILD_UIDS, BUILD_UIDS + AT_ONCE))

    async def install(self, folder: Path, runtime: str) -> None:
        """Add to a package what it depends on; raises InstallFailed. It may run again in a fresh folder."""
        found = installed().get(runtime)
        if found is None:
            raise InstallFailed(f"{runtime} is not installed here any more")
        name = "node_modules" if runtime.startswith("nodejs") else "packages"
        key = lock_key(folder, runtime)
        if key is not None and await asyncio.to_thread(_take_kept, self._kept / key, folder / name):
            return
        async with self._slots:
            uid = self._free_uids.pop()
            try:
                await self._run(folder, found, uid)
            finally:
                self._free_uids.append(uid)
        if key is not None and (folder / name).is_dir():
            await asyncio.to_thread(_keep, folder / name, self._kept, key)

    async def _run(self, folder: Path, runtime: Runtime, uid: int) -> None:
        is_root = os.getuid() == 0
        if is_root:
            await asyncio.to_thread(folders.give, folder, uid)
        try:
            done = await sandbox.run(self._job(folder, runtime, uid if is_root else 0))
        finally:
            if is_root:
                await asyncio.to_thread(folders.give, folder, 0)
        if done.code != 0:
            raise InstallFailed(tail(done.output) + (f"\n({done.why})" if done.why else ""))

    def _job(self, folder: Path, runtime: Runtime, uid: int) -> sandbox.Job:
        settings = self._settings
        binds = zygotes.binds({runtime.name: runtime})
        env = {**toolchain.environment(), "HOME": "/tmp"}  # noqa: S108
        if authorities := toolchain.authorities(settings.extra_ca):
            binds[toolchain.AUTHORITIES] = authorities
            env |= toolchain.trusting(toolchain.AUTHORITIES)
        argv = _npm(folder, runtime, binds, env) if runtime.language == "nodejs" else _pip(runtime, binds, env)
        return sandbox.Job(
            argv=argv,
            work=str(folder),
            env=env,
            binds=binds,
            uid=uid,
            timeout_s=TIMEOUT_S,
            allow=list(settings.sandbox_allow),
            block=list(settings.sandbox_block),
        )


def _npm(folder: Path, runtime: Runtime, binds: dict[str, str], env: dict[str, str]) -> list[str]:
    """`npm ci` where there is a lock file."""
    has_lock = any((folder / name).is_file() for name in ("package-lock.json", "npm-shrinkwrap.json"))
    binds[toolchain.NPM] = str(toolchain.npm_folder(runtime))
    env["npm_config_cache"] = "/tmp/npm"  # noqa: S108
    # Links to programs are no files, and a function's package has only files.
    flags = ["--omit=dev", "--no-audit", "--no-fund", "--no-bin-links", "--loglevel=error"]
    node = zygotes.inside(runtime)
    env["PATH"] = f"{Path(node).parent}:{env['PATH']}"
    return [node, f"{toolchain.NPM}/bin/npm-cli.js", "ci" if has_lock else "install", *flags]


def _pip(runtime: Runtime, binds: dict[str, str], env: dict[str, str]) -> list[str]:
    """pip with wheels only: building from source would run its authors' code for what is only a library."""
    found = toolchain.find_pip()
    if found is None:
        raise InstallFailed("pip is not installed on this machine")
    binds[str(Path(toolchain.PIP, found[0]))] = str(found[1])
    env["PYTHONPATH"] = toolchain.PIP
    flags = [
        "--only-binary=:all:",
        "--no-input",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--no-warn-conflicts",
    ]
    target = ["--target", f"{sandbox.WORK}/packages", "-r", f"{sandbox.WORK}/requirements.txt"]
    return [str(runtime.executable), "-m", "pip", "install", *flags, *target]


def lock_key(folder: Path, runtime: str) -> str | None:
    """Return what names a set of dependencies exactly, or None where they are not pinned."""
    digest = hashlib.sha256(f"{runtime}:{os.uname().machine}\n".encode())
    if runtime.startswith("nodejs"):
        locks = [folder / name for name in ("package-lock.json", "npm-shrinkwrap.json") if (folder / name).is_file()]
        if not locks:
            return None
        names = [folder / "package.json", *locks]
    else:
        names = [folder / "requirements.txt"]
        lines = (line.partition("#")[0].strip() for line in names[0].read_text("utf-8", "replace").splitlines())
        if not all(_PINNED.match(line.partition(";")[0]) for line in lines if line):
            return None
    for name in names:
        digest.update(name.read_bytes())
    return digest.hexdigest()


def tail(output: str) -> str:
    """Return the end of what an installer printed, without the paths of the sandbox."""
    lines = output.strip().splitlines()[-TAIL_LINES:]
    return "\n".join(lines)[-TAIL_BYTES:].replace(f"{sandbox.WORK}/", "")


def _take_kept(kept: Path, target: Path) -> bool:
    if not kept.is_dir():
        return False
    os.utime(kept)
    shutil.copytree(kept, target, symlinks=True)
    return True


def _keep(source: Path, folder: Path, key: str) -> None:
    """Keep a copy for the next deployment, and let go of what was used longest ago."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = folder / f".{secrets.token_hex(8)}"
    # What cannot be copied (an install script may leave pipes behind, or folders that nobody may read) is not kept.
    with contextlib.suppress(OSError):
        shutil.copytree(source, fresh, symlinks=True)
        fresh.rename(folder / key)
    shutil.rmtree(fresh, ignore_errors=True)
    _trim(folder)


def _trim(folder: Path) -> None:
    own = (each for each in folder.iterdir() if _KEY.fullmatch(each.name))  # Builds have theirs here too.
    kept = sorted(own, key=lambda each: -each.stat().st_mtime)
    used = 0
    for each in kept:
        used += sum(path.lstat().st_size for path in each.rglob("*"))
        if used > KEPT_BYTES and time.time() - each.stat().st_mtime > 60:
            shutil.rmtree(each, ignore_errors=True)
