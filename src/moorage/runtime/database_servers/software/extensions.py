"""Extensions of downloaded PostgreSQL: files that the server lacks, and permission for users to create them.

PostgreSQL lets the owner of a database create an extension whose control file says `trusted`; the script runs as the
superuser. The extensions in TRUSTED are reviewed for that: their scripts call no function that a user could have made
before, and they give no access to files of the server or to the statements of other roles. `postgres_fdw` connects to
other servers: PostgreSQL requires a password of its users, and the sandbox of a server has no egress.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.database_servers.software import libraries
from moorage.runtime.database_servers.software.releases import Release

TRUSTED = ("moddatetime", "pg_stat_statements", "postgres_fdw", "vector")
# `@extowner@` is the user who creates the extension. Without the grant only a superuser could add foreign servers.
_GRANTS: Mapping[str, str] = {
    "postgres_fdw--1.0.sql": "GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO @extowner@;"
}
_FOLDERS = ("share/postgresql/extension", "share/extension")
_LIBRARIES = ("libossp-uuid.so.16",)  # of uuid-ossp
_HIDDEN = ".unloadable"  # ending of a hidden control file
# The x86-64 build of `vector` uses these without a check; others would kill the server with SIGILL.
_X86_FLAGS = frozenset(("abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"))


def lacks_files(release: Release, server: Path) -> bool:
    """Tell whether a package of the release has extensions that the server has not."""
    names = [package.extension for package in release.packages if package.extension and runs_here()]
    return any(not any((server / each / f"{name}.control").is_file() for each in _FOLDERS) for name in names)


def add(release: Release, fetched: Path, server: Path) -> None:
    """Move the extensions of fetched packages to the server. Safe while servers run."""
    for package in release.packages:
        if package.extension:
            source = fetched / package.to / package.extension_home
            if runs_here():
                _move(source, server)
            for name in ("lib", "share"):
                folders.remove(source / name)
    allow(server)


def allow(server: Path) -> None:
    """Let users create the extensions in TRUSTED. Safe to repeat and while servers run."""
    for folder in (server / name for name in _FOLDERS):
        for name, line in _GRANTS.items():
            _append(folder / name, line)
        for name in TRUSTED:
            _append(folder / f"{name}.control", "trusted = true")


def add_libraries(server: Path, homes: Iterable[Path]) -> None:
    """Copy libraries of extensions that the system lacks from other installed software."""
    for name in libraries.missing(_LIBRARIES):
        source = next((home / "lib" / name for home in homes if (home / "lib" / name).is_file()), None)
        target = server / "lib" / name
        if source is not None and source != target and not target.exists():
            shutil.copy(source, target)


def hide_unloadable(server: Path) -> None:
    """Hide extensions whose module needs a library that this machine lacks: `CREATE EXTENSION` would fail."""
    ldd = shutil.which("ldd")
    for folder in (server / name for name in _FOLDERS) if ldd is not None else ():
        for path in [*folder.glob("*.control"), *folder.glob(f"*.control{_HIDDEN}")]:
            module = _module_of(path, server)
            if module is None:
                continue
            env = {"LD_LIBRARY_PATH": str(server / "lib"), "LC_ALL": "C"}
            done = subprocess.run([str(ldd), str(module)], env=env, capture_output=True, text=True, check=False)
            shown = path.name.removesuffix(_HIDDEN)
            path.rename(folder / (f"{shown}{_HIDDEN}" if "=> not found" in done.stdout else shown))


def _module_of(control: Path, server: Path) -> Path | None:
    match = re.search(r"^module_pathname\s*=\s*'\$libdir/([\w-]+)'", control.read_text(), re.MULTILINE)
    paths = [server / folder / f"{match[1]}.so" for folder in ("lib/postgresql", "lib")] if match else []
    return next(filter(Path.is_file, paths), None)


def runs_here(machine: str = platform.machine(), cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Tell whether this CPU has all instructions that the packages' extensions use."""
    if machine != "x86_64":
        return True
    flags = next((line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")), "")
    return set(flags.split()) >= _X86_FLAGS


def _move(source: Path, server: Path) -> None:
    """Move the files of `lib` and `share`, and control files last: they make the rest visible."""
    files = [Path(entry.path) for name in ("lib", "share") for entry in folders.walk(source / name) if entry.is_file()]
    for path in sorted(files, key=lambda file: file.suffix == ".control"):
        target = server / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)


def _append(path: Path, line: str) -> None:
    """Append a line to a file once, in one step."""
    if path.is_file() and line not in (text := path.read_text()).splitlines():
        fresh = path.with_name(f".{path.name}")
        fresh.write_text(f"{text.rstrip()}\n{line}\n")
        fresh.chmod(0o644)
        fresh.replace(path)
