"""Collect the output of a build: regular files and folders, within limits.

The output is untrusted. No process of the build runs any more, so it does not change meanwhile.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shlex
import shutil
import stat
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

from moorage.core.kit import folders, zips, zips_writer
from moorage.core.kit.records import dataclass
from moorage.runtime.builds.ports import BuildFailed, Kind
from moorage.runtime.sandbox.heavy import Refused
from moorage.runtime.workers.runtimes import installed

MB = 2**20
MAX_SITE_FILES = 50_000
MAX_SITE_BYTES = 1024 * MB
# Apps include their dependencies.
MAX_APP_FILES = 150_000
MAX_APP_BYTES = 2048 * MB
LINK_COST = 10  # Following a link counts as much as copying this number of files.
# Limits of packed artifacts, whose entries are files and empty folders.
CAPS = zips.Caps(
    packed_bytes=MAX_SITE_BYTES + 100 * MB,
    unpacked_bytes=MAX_SITE_BYTES,
    entries=2 * MAX_SITE_FILES,
    path_chars=1024,
    depth=64,
)
APP_CAPS = zips.Caps(
    packed_bytes=MAX_APP_BYTES + 300 * MB,
    unpacked_bytes=MAX_APP_BYTES,
    entries=2 * MAX_APP_FILES,
    path_chars=1024,
    depth=64,
    is_case_sensitive=True,
)
# Never published. Names that begin with `.env.` are left out too, because they may have secrets.
LEFT_OUT = (".git", ".env", "node_modules", ".venv")
# Files of a project beside its pages, which are not published where the platform chose the folder.
SOURCES = (
    *("package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock*", "*.py"),
    *("requirements*.txt", "pyproject.toml", "uv.lock", "poetry.lock", "Pipfile*", "Gemfile*", "composer.*", "*.rb"),
    *("Dockerfile*", "docker-compose*", "compose.y*ml", "Makefile", "tsconfig*.json", "gulpfile.*", "Gruntfile.*"),
    *("webpack.config.*", "*.php", "Procfile", ".git*"),
)
MAX_NOTES = 50  # lines about links of packages that are left out
OWN = ".moorage"  # reserved folder of the platform in a published site


def is_source(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, each) for each in SOURCES)


def leave_out(folder: Path, *, has_sources: bool = False) -> list[str]:
    """Remove files of the repository that are not for publication, also sources; return their names."""
    names = [
        name
        for name in sorted(os.listdir(folder))
        if name in LEFT_OUT or name.startswith(".env.") or (has_sources and is_source(name))
    ]
    for name in names:
        folders.remove(folder / name)
    return names


@dataclass(frozen=True, slots=True)
class _Limits:
    files: int
    size: int

    def __str__(self) -> str:
        return f"has more than {self.files:,} files or {self.size // MB:,} MB"


def _ignore(_: str) -> None:
    return None


def collect(output: Path, kind: Kind, *, root: Path | None = None, say: Callable[[str], None] = _ignore) -> int:
    """Reduce a folder to regular files in place; return the count. Raises BuildFailed.

    Links inside the folder become copies; pipes, sockets and devices are removed. `output` itself contains no links. An
    app may link to other files of its repository, `root`, and invalid links of installed packages are removed.
    """
    is_app = kind == "container"
    if not is_app:
        folders.remove(output / OWN)
    elif folders.is_real(output, output / ".venv") and (output / ".venv" / "lib64").is_symlink():
        (output / ".venv" / "lib64").unlink()  # A link to `lib`, which Python searches anyway.
    limits = _Limits(MAX_APP_FILES, MAX_APP_BYTES) if is_app else _Limits(MAX_SITE_FILES, MAX_SITE_BYTES)
    inside = Path(os.path.realpath(root)) if is_app and root is not None else output
    copies = _Copies(output, inside, limits)
    notes = _Notes(say)
    for link in _normalize(output, limits):
        if not is_app or not _handle_package_link(output, inside, link, notes.say):
            copies.replace(link)
    notes.end()
    return _count(output, limits, is_case_sensitive=is_app)


def pack(folder: str, target: str) -> int:
    """Write the files of a release as an archive; return their number. Runs in a process of HeavyWork."""
    try:
        return zips_writer.pack(Path(folder), Path(target))
    except OSError as error:
        raise Refused(error.strerror or str(error)) from None


def _handle_package_link(output: Path, inside: Path, link: Path, say: Callable[[str], None]) -> bool:
    """Copy a virtual environment's Python, remove other invalid links of packages.

    Returns False for a link that it leaves.
    """
    name, target = link.relative_to(output), Path(os.path.realpath(link))
    is_package = not {"node_modules", ".venv"}.isdisjoint(name.parts[:-1])
    is_loop = is_package and link.is_relative_to(target)  # A package of a workspace that depends on the root itself.
    if target.is_relative_to(inside) and os.path.exists(target) and not is_loop:
        return False
    if name.parts[:2] == (".venv", "bin") and target in _pythons():
        link.unlink()
        shutil.copyfile(target, link)
        link.chmod(0o755)
        return True
    if is_package:
        link.unlink()
        why = "leads out of the folder" if not target.is_relative_to(inside) else "leads nowhere"
        why = "leads to a folder that it lies in" if is_loop else why
        say(f"left out: {_shown(name.as_posix())}, a link that {why}")
        return True
    return False


def _pythons() -> set[Path]:
    return {each.executable for each in installed().values() if each.language == "python"}


class _Notes:
    """Lines about links that are left out: the first ones, and the number of the others."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._count = 0

    def say(self, line: str) -> None:
        self._count += 1
        if self._count <= MAX_NOTES:
            self._say(line)

    def end(self) -> None:
        if self._count > MAX_NOTES:
            self._say(f"left out: {self._count - MAX_NOTES:,} more links of packages")


def _normalize(output: Path, limits: _Limits) -> list[Path]:
    """Set permissions, remove pipes, sockets and devices; return the links. Raises BuildFailed for too many."""
    links = []
    with contextlib.suppress(PermissionError):  # In a pod it may be a volume, which belongs to root.
        output.chmod(0o755)
    for entry in _entries(output):
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            links.append(Path(entry.path))
            if len(links) > limits.files:
                raise BuildFailed(f"it {limits}")
        elif stat.S_ISDIR(mode):
            Path(entry.path).chmod(0o755)
        elif stat.S_ISREG(mode):
            Path(entry.path).chmod(0o755 if mode & stat.S_IXUSR else 0o644)
        else:
            os.unlink(entry.path)
    return links


def _entries(output: Path) -> Iterator[os.DirEntry[str]]:
    """Yield all entries below a folder; raises BuildFailed for an invalid name."""
    start = len(os.fspath(output)) + 1
    for entry in folders.walk(output):
        _check_name(entry.path[start:])
        yield entry


def _check_name(name: str) -> None:
    if problem := _name_problem(name):
        raise BuildFailed(f"the file {_shown(name)} {problem}")


def _name_problem(name: str) -> str | None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return "has a name that is not valid UTF-8"
    is_plain = name.isascii() and name.isprintable()
    if "\\" in name or not (is_plain or _is_printable(name)):
        return "has a control character or a backslash in its name"
    if len(name) > CAPS.path_chars:
        return f"has a path of more than {CAPS.path_chars} characters"
    return f"is more than {CAPS.depth} folders deep" if name.count("/") >= CAPS.depth else None


def _is_printable(name: str) -> bool:
    return not any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in name)


def _shown(name: str) -> str:
    text = name.encode(errors="replace").decode()
    return repr(text[:100]) + ("..." if len(text) > 100 else "")


class _Copies:
    """Replaces links by copies within the limits: links can point to folders of links."""

    def __init__(self, output: Path, inside: Path, limits: _Limits) -> None:
        self._output = output
        self._inside = inside  # folder that links must not leave
        self._limits = limits
        self._left_entries = limits.files
        self._left_bytes = limits.size

    def replace(self, link: Path) -> None:
        """Replace a link by a copy of its target; raises BuildFailed for an invalid link."""
        name = link.relative_to(self._output).as_posix()
        try:
            self._replace(link, name)
        except OSError as error:  # A target outside of the output may be a pipe, or not readable.
            raise BuildFailed(f"{_shown(name)} is a link that cannot be followed: {error.strerror or error}") from error

    def _replace(self, link: Path, name: str) -> None:
        target = Path(os.path.realpath(link))
        if not target.is_relative_to(self._inside):
            raise BuildFailed(f"{_shown(name)} is a link that leads out of the published folder")
        if not target.exists():
            raise BuildFailed(f"{_shown(name)} is a link that leads nowhere")
        if link.is_relative_to(target):
            raise BuildFailed(f"{_shown(name)} is a link to a folder that it lies in itself")
        self._charge(0, entries=LINK_COST)
        link.unlink()
        if target.is_dir():
            self._copy_folder(target, link)
        elif link.parent.name == ".bin" and link.parent.parent.name == "node_modules":
            _write_wrapper(target, link)
        else:
            self._copy_file(target, link)

    def _copy_folder(self, target: Path, link: Path) -> None:
        """Copy a folder, keeping the targets of its links; then replace these links too."""
        link.mkdir(mode=0o755)
        links: list[Path] = []
        for entry in folders.walk(target):
            copy = link / Path(entry.path).relative_to(target)
            _check_name(copy.relative_to(self._output).as_posix())
            if entry.is_symlink():
                os.symlink(os.path.realpath(entry.path), copy)
                links.append(copy)
            elif entry.is_dir(follow_symlinks=False):
                self._charge(0)
                copy.mkdir(mode=0o755)
            else:
                self._copy_file(Path(entry.path), copy)
        for copy in links:
            self.replace(copy)

    def _copy_file(self, source: Path, copy: Path) -> None:
        status = source.stat()
        self._charge(status.st_size)
        shutil.copyfile(source, copy)
        copy.chmod(0o755 if status.st_mode & stat.S_IXUSR else 0o644)

    def _charge(self, size: int, entries: int = 1) -> None:
        self._left_entries -= entries
        self._left_bytes -= size
        if self._left_entries < 0 or self._left_bytes < 0:
            raise BuildFailed(f"with its links replaced by copies it {self._limits}")


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; without the flag, a pipe that no process writes to would block."""
    return os.open(path, flags | os.O_NONBLOCK)


def _write_wrapper(target: Path, link: Path) -> None:
    """Write a script that runs an npm program in place; a copy would miss its files."""
    with open(target, "rb", opener=_open_at_once) as file:
        head = file.read(4) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    is_executable = head.startswith((b"#!", b"\x7fELF")) and os.access(target, os.X_OK)
    program = os.path.relpath(target, link.parent)
    interpreter = "" if is_executable else "node "
    link.write_text(f'#!/bin/sh\nexec {interpreter}"$(dirname "$0")"/{shlex.quote(program)} "$@"\n')
    link.chmod(0o755)


def _count(output: Path, limits: _Limits, *, is_case_sensitive: bool) -> int:
    """Count files; raises BuildFailed over the limits or for names equal but for case."""
    files = used = 0
    seen: dict[str, str] = {}
    start = len(os.fspath(output)) + 1
    for entries, entry in enumerate(_entries(output), 1):
        if not is_case_sensitive:
            _check_case(entry.path[start:], seen)
        if not entry.is_dir(follow_symlinks=False):
            files += 1
            used += entry.stat(follow_symlinks=False).st_size
        if files > limits.files or entries > 2 * limits.files or used > limits.size:
            raise BuildFailed(f"it {limits}")
    return files


def _check_case(name: str, seen: dict[str, str]) -> None:
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())
    if folded in seen:
        raise BuildFailed(f"{_shown(seen[folded])} and {_shown(name)} differ only in upper and lower case")
    seen[folded] = name
