"""Taking what a build has left: plain files and folders only, no larger than an artifact may be.

Whoever built it may have put anything there. Nothing of the build runs any more when this looks, so what it sees stays.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from moorage.core.kit import folders, zips
from moorage.runtime.builds.ports import BuildFailed, Kind
from moorage.runtime.workers.runtimes import installed

MB = 2**20
MOST_FILES = 50_000
MOST_BYTES = 1024 * MB
# Of apps, whose dependencies lie with them.
MOST_APP_FILES = 150_000
MOST_APP_BYTES = 2048 * MB
LINK_COST = 10  # To follow a link takes as long as to copy some files.
# What is collected, packed and later unpacked again: files, and folders that are empty.
CAPS = zips.Caps(
    packed_bytes=MOST_BYTES + 100 * MB, unpacked_bytes=MOST_BYTES, entries=2 * MOST_FILES, path_chars=1024, depth=64
)
APP_CAPS = zips.Caps(
    packed_bytes=MOST_APP_BYTES + 300 * MB,
    unpacked_bytes=MOST_APP_BYTES,
    entries=2 * MOST_APP_FILES,
    path_chars=1024,
    depth=64,
    is_case_sensitive=True,
)
# Nobody means to publish these. What begins with `.env` may hold secrets, whatever follows.
LEFT_OUT = (".git", ".env", "node_modules", ".venv")
OWN = ".moorage"  # the platform's place in a published site


def leave_out(folder: Path) -> list[str]:
    """Remove from the root of a site what is there because the repository has it; return the names."""
    names = [name for name in sorted(os.listdir(folder)) if name in LEFT_OUT or name.startswith(".env.")]
    for name in names:
        folders.remove(folder / name)
    return names


@dataclass(frozen=True, slots=True)
class _Limits:
    files: int
    size: int

    def __str__(self) -> str:
        return f"has more than {self.files:,} files or {self.size // MB:,} MB"


def _unsaid(_: str) -> None:
    return None


def collect(output: Path, kind: Kind, *, root: Path | None = None, say: Callable[[str], None] = _unsaid) -> int:
    """Make a folder plain, in place, and return how many files it has; raises BuildFailed.

    Links that stay inside it become copies, and pipes, sockets and devices go. The path itself has no links in it.
    An app may link to what lies beside it in its repository, `root`, and of installed packages a bad link is no end.
    """
    is_app = kind == "container"
    if not is_app:
        folders.remove(output / OWN)
    elif (output / ".venv" / "lib64").is_symlink():
        (output / ".venv" / "lib64").unlink()  # It stands for `lib`, and Python looks there itself.
    limits = _Limits(MOST_APP_FILES, MOST_APP_BYTES) if is_app else _Limits(MOST_FILES, MOST_BYTES)
    inside = Path(os.path.realpath(root)) if is_app and root is not None else output
    copies = _Copies(output, inside, limits)
    for link in _plain_but_links(output):
        if not is_app or not _is_settled(output, inside, link, say):
            copies.replace(link)
    return _count(output, limits, is_case_sensitive=is_app)


def _is_settled(output: Path, inside: Path, link: Path, say: Callable[[str], None]) -> bool:
    """Replace a link of a virtual environment to its Python, and drop what else is bad among installed packages."""
    name, target = link.relative_to(output), Path(os.path.realpath(link))
    if target.is_relative_to(inside) and os.path.exists(target):
        return False
    if name.parts[:2] == (".venv", "bin") and target in _pythons():
        link.unlink()
        shutil.copyfile(target, link)
        link.chmod(0o755)
        return True
    if not {"node_modules", ".venv"}.isdisjoint(name.parts[:-1]):
        link.unlink()
        why = "leads out of the folder" if not target.is_relative_to(inside) else "leads nowhere"
        say(f"left out: {_shown(name.as_posix())}, a link that {why}")
        return True
    return False


def _pythons() -> set[Path]:
    return {each.executable for each in installed().values() if each.language == "python"}


def _plain_but_links(output: Path) -> list[Path]:
    """Open what is locked and remove what is neither file nor folder; return the links that are left."""
    links = []
    output.chmod(0o755)
    for entry in _entries(output):
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            links.append(Path(entry.path))
        elif stat.S_ISDIR(mode):
            Path(entry.path).chmod(0o755)
        elif stat.S_ISREG(mode):
            Path(entry.path).chmod(0o755 if mode & stat.S_IXUSR else 0o644)
        else:
            os.unlink(entry.path)
    return links


def _entries(output: Path) -> Iterator[os.DirEntry[str]]:
    """Yield everything below; raises BuildFailed for a name that no archive can hold, before it is used further."""
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
    is_usual = name.isascii() and name.isprintable()
    if "\\" in name or not (is_usual or _is_printable(name)):
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
    """Puts copies in the place of links, never more than may be published: links can lead to folders of links."""

    def __init__(self, output: Path, inside: Path, limits: _Limits) -> None:
        self._output = output
        self._inside = inside  # where links may lead
        self._limits = limits
        self._left_entries = limits.files
        self._left_bytes = limits.size

    def replace(self, link: Path) -> None:
        """Put what a link leads to in its place; raises BuildFailed where it leads out, or nowhere."""
        name = link.relative_to(self._output).as_posix()
        try:
            self._replace(link, name)
        except OSError as error:  # What lies beside the output may be a pipe, or locked.
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
            _write_start(target, link)
        else:
            self._copy_file(target, link)

    def _copy_folder(self, target: Path, link: Path) -> None:
        """Copy a folder; the links in it are made to lead where they did, and then replaced as well."""
        link.mkdir(mode=0o755)
        links: list[Path] = []
        for entry in folders.walk(target):
            place = link / Path(entry.path).relative_to(target)
            _check_name(place.relative_to(self._output).as_posix())
            if entry.is_symlink():
                os.symlink(os.path.realpath(entry.path), place)
                links.append(place)
            elif entry.is_dir(follow_symlinks=False):
                self._charge(0)
                place.mkdir(mode=0o755)
            else:
                self._copy_file(Path(entry.path), place)
        for place in links:
            self.replace(place)

    def _copy_file(self, source: Path, place: Path) -> None:
        found = source.stat()
        self._charge(found.st_size)
        shutil.copyfile(source, place)
        place.chmod(0o755 if found.st_mode & stat.S_IXUSR else 0o644)

    def _charge(self, size: int, entries: int = 1) -> None:
        self._left_entries -= entries
        self._left_bytes -= size
        if self._left_entries < 0 or self._left_bytes < 0:
            raise BuildFailed(f"with its links replaced by copies it {self._limits}")


def _write_start(target: Path, link: Path) -> None:
    """npm links programs, and a copied program would not find what lies beside it: start it where it is."""
    with target.open("rb") as file:
        head = file.read(4)
    starts_itself = head.startswith((b"#!", b"\x7fELF")) and os.access(target, os.X_OK)
    place = os.path.relpath(target, link.parent)
    start = "" if starts_itself else "node "
    link.write_text(f'#!/bin/sh\nexec {start}"$(dirname "$0")"/{shlex.quote(place)} "$@"\n')
    link.chmod(0o755)


def _count(output: Path, limits: _Limits, *, is_case_sensitive: bool) -> int:
    """Count files; raises BuildFailed where there are too many, or two names that are one on other machines."""
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
