"""Taking what a build has left: plain files and folders only, no larger than an artifact may be.

Whoever built it may have put anything there. Nothing of the build runs any more when this looks, so what it sees stays.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from moorage.builds.ports import BuildFailed, Kind
from moorage.kit import folders, zips

MB = 2**20
MOST_FILES = 50_000
MOST_BYTES = 1024 * MB
LINK_COST = 10  # To follow a link takes as long as to copy some files.
# What is collected, packed and later unpacked again: files, and folders that are empty.
CAPS = zips.Caps(
    packed_bytes=MOST_BYTES + 100 * MB, unpacked_bytes=MOST_BYTES, entries=2 * MOST_FILES, path_chars=1024, depth=64
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


def collect(output: Path, kind: Kind) -> int:
    """Make a folder plain, in place, and return how many files it has; raises BuildFailed.

    Links that stay inside it become copies, and pipes, sockets and devices go. The path itself has no links in it.
    """
    if kind == "static":
        folders.remove(output / OWN)
    elif (output / ".venv" / "lib64").is_symlink():
        (output / ".venv" / "lib64").unlink()  # It stands for `lib`, and Python looks there itself.
    copies = _Copies(output)
    for link in _plain_but_links(output):
        copies.replace(link)
    return _count(output)


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

    def __init__(self, output: Path) -> None:
        self._output = output
        self._left_entries = MOST_FILES
        self._left_bytes = MOST_BYTES

    def replace(self, link: Path) -> None:
        """Put what a link leads to in its place; raises BuildFailed where it leads out, or nowhere."""
        target, name = Path(os.path.realpath(link)), link.relative_to(self._output).as_posix()
        if not target.is_relative_to(self._output):
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
            raise BuildFailed("with its links replaced by copies " + _too_much())


def _write_start(target: Path, link: Path) -> None:
    """npm links programs, and a copied program would not find what lies beside it: start it where it is."""
    with target.open("rb") as file:
        is_shell = file.readline(200).startswith((b"#!/bin/sh", b"#!/usr/bin/env bash", b"#!/bin/bash"))
    place = os.path.relpath(target, link.parent)
    start = "sh" if is_shell else "node"
    link.write_text(f'#!/bin/sh\nexec {start} "$(dirname "$0")"/{shlex.quote(place)} "$@"\n')
    link.chmod(0o755)


def _count(output: Path) -> int:
    """Count files; raises BuildFailed where there are too many, or two names that are one on other machines."""
    files = used = 0
    seen: dict[str, str] = {}
    start = len(os.fspath(output)) + 1
    for entry in _entries(output):
        name = entry.path[start:]
        folded = unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())
        if folded in seen:
            raise BuildFailed(f"{_shown(seen[folded])} and {_shown(name)} differ only in upper and lower case")
        seen[folded] = name
        if not entry.is_dir(follow_symlinks=False):
            files += 1
            used += entry.stat(follow_symlinks=False).st_size
        if files > MOST_FILES or len(seen) > 2 * MOST_FILES or used > MOST_BYTES:
            raise BuildFailed("it " + _too_much())
    return files


def _too_much() -> str:
    return f"has more than {MOST_FILES:,} files or {MOST_BYTES // MB:,} MB"
