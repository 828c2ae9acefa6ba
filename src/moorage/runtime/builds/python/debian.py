"""Python from the packages of a newer Debian, for machines that reach their package archive and not uv's downloads.

apt fetches the packages from the archive that the machine already uses, and verifies their signatures. They need a
newer C library than the machine's: it is unpacked beside them, and a wrapper script starts the interpreter with it.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from moorage.runtime import packages
from moorage.runtime.builds.ports import BuildFailed
from moorage.runtime.workers import toolchain

RELEASES = {"3.13": "trixie"}  # version of Python -> code name of the Debian release that has it
TIMEOUT_S = 300
NAME = "cpython-{}-debian"  # folder of a version
PRIVATE = "lib/private"  # folder with the interpreter itself and its libraries
_LIBRARIES = (
    *("libc6", "zlib1g", "libexpat1", "libssl3t64", "libffi8", "libsqlite3-0", "libbz2-1.0", "liblzma5", "libzstd1"),
    *("libncursesw6", "libtinfo6", "libreadline8t64", "libuuid1", "libdb5.3t64"),
)
_PYTHON = ("python{}", "python{}-minimal", "libpython{}-minimal", "libpython{}-stdlib", "libpython{}-dev")
_ARCHIVE = "$(REPO_URI) $(COMPONENT) $(SIGNED_BY)"


class _Machine(NamedTuple):
    libraries: str  # folder of its libraries
    loader: str  # name of the dynamic loader


_MACHINES = {
    "aarch64": _Machine("aarch64-linux-gnu", "ld-linux-aarch64.so.1"),
    "x86_64": _Machine("x86_64-linux-gnu", "ld-linux-x86-64.so.2"),
}


def fetch(version: str, parent: Path, scratch: Path) -> None:
    """Install a version into its folder below `parent`; raises BuildFailed. `scratch` is a new, empty folder."""
    machine, release = _MACHINES.get(platform.machine()), RELEASES.get(version)
    if machine is None or release is None:
        raise BuildFailed(f"no release of Debian has Python {version} for this machine")
    missing = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name, path=toolchain.SYSTEM_PATH) is None]
    if missing:
        raise BuildFailed(f"{missing[0]} is not installed")
    options = apt_options(release, scratch)
    run(["apt-get", *options, "update"], scratch)
    downloads, files = scratch / "downloads", scratch / "files"
    downloads.mkdir()
    names = [*(name.format(version) for name in _PYTHON), *_LIBRARIES]
    run(["apt-get", *options, "download", *names], downloads)
    for path in sorted(downloads.glob("*.deb")):
        run(["dpkg-deb", "--extract", str(path), str(files)], scratch)
    try:
        _assemble(version, machine, files / "usr", scratch / "fresh", parent / NAME.format(version))
    except (OSError, StopIteration) as error:
        raise BuildFailed(f"the packages of Debian {release} do not have the expected files: {error}") from error


def release() -> str:
    """Return the code name of the machine's release of Debian; "" for another system."""
    try:
        text = Path("/etc/os-release").read_text()
    except OSError:
        return ""
    code = re.search(r"^VERSION_CODENAME=\"?([a-z]+)\"?$", text, re.MULTILINE)
    return code[1] if code and re.search(r"^ID=\"?debian\"?$", text, re.MULTILINE) else ""


def apt_options(release: str, scratch: Path) -> list[str]:
    """Return the options with which apt uses one release, and no file of the machine's package manager."""
    uri, signed_by = _archive(scratch)
    (scratch / "lists").mkdir()
    (scratch / "cache").mkdir()
    key = f"[signed-by={signed_by}] " if signed_by else ""
    (scratch / "sources.list").write_text(f"deb {key}{uri} {release} main\n")
    settings = {
        "Dir::Etc::sourcelist": scratch / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": scratch / "lists",
        "Dir::Cache": scratch / "cache",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "1",
        "Acquire::Languages": "none",
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _archive(scratch: Path) -> tuple[str, str]:
    """Return the address of the machine's Debian archive and the file of its keys; "" without a file."""
    for line in run(["apt-get", "indextargets", "--format", _ARCHIVE], scratch).splitlines():
        uri, component, signed_by = (*line.split(" "), "", "")[:3]
        if component == "main" and "security" not in uri and re.fullmatch(r"https?://[\w.:/~%@+-]+", uri):
            return uri, signed_by if signed_by.startswith("/") else ""
    raise BuildFailed("apt has no archive of Debian")


def _assemble(version: str, machine: _Machine, source: Path, fresh: Path, target: Path) -> None:
    """Put the interpreter, its library and its C library into one folder, and move it to its place."""
    private = fresh / PRIVATE
    private.mkdir(parents=True)
    name = f"python{version}"
    shutil.copytree(
        source / "lib" / name,
        fresh / "lib" / name,
        ignore=shutil.ignore_patterns("*.a"),
        ignore_dangling_symlinks=True,
    )
    headers = fresh / "include" / name
    shutil.copytree(source / "include" / name, headers)
    # The general one includes this one by a path below /usr/include.
    shutil.copy(source / "include" / machine.libraries / name / "pyconfig.h", headers)
    for library in (source / "lib" / machine.libraries).glob("*.so*"):
        if library.resolve().is_file():
            shutil.copy(library, private / library.name)
    loader = next(path for path in sorted(source.rglob(machine.loader)) if path.resolve().is_file())
    shutil.copy(loader, private / machine.loader)
    shutil.copy(source / "bin" / name, private / name)
    (fresh / "bin").mkdir()
    # Virtual environments copy the wrapper, and a sandbox may have the interpreter at the second path.
    places = (shlex.quote(str(target / PRIVATE)), f"/opt/python-{version}/{PRIVATE}")
    choice = f'place={places[0]}\n[ -x "$place/{name}" ] || place={places[1]}\n'
    command = f'exec "$place/{machine.loader}" --argv0 "$0" --library-path "$place" "$place/{name}" "$@"\n'
    (fresh / "bin" / name).write_text(f"#!/bin/sh\n{choice}{command}")
    (fresh / "bin" / name).chmod(0o755)
    for other in ("python3", "python"):
        (fresh / "bin" / other).symlink_to(name)
    packages.make_readable(fresh)
    for program in (loader.name, name):
        (private / program).chmod(0o755)
    run([str(private / machine.loader), "--library-path", str(private), str(private / name), "--version"], fresh)
    fresh.rename(target)


def run(argv: list[str], folder: Path) -> str:
    """Run a program and return its standard output; raises BuildFailed."""
    env = toolchain.environment() | {"HOME": str(folder), "DEBIAN_FRONTEND": "noninteractive"}
    env |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    try:
        done = subprocess.run(argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"{argv[0]} failed: {error}") from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise BuildFailed(lines[-1] if lines else f"{argv[0]} ended with code {done.returncode}")
    return done.stdout
