"""Sources of COPY, ADD and bind mounts: files of the build context, of a stage or of an image."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Iterator, Sequence

from moorage.core.kit.records import dataclass
from moorage.runtime.images.building.files.tree import Node, Tree, TreeError
from moorage.runtime.images.dockerfile import patterns
from moorage.runtime.images.dockerfile.ignore import Ignored

_WILDCARDS = frozenset("*?[")
MAX_FILES = 500_000
NONE = Ignored([])


@dataclass(frozen=True, slots=True)
class Source:
    """A tree to copy from, and how messages name it."""

    tree: Tree
    label: str  # "the build context", "the stage build", "the image alpine"
    ignored: Ignored = NONE
    keeps_owners: bool = True  # files of the build context belong to root


@dataclass(frozen=True, slots=True)
class Selected:
    """One file, link or folder to copy."""

    node: Node
    below: tuple[str, ...]  # path below the source; () for the source itself
    source: Source

    @property
    def owner(self) -> tuple[int, int]:
        return self.node.owner if self.source.keeps_owners else (0, 0)


@dataclass(frozen=True, slots=True)
class Match:
    """One source of an instruction after its wildcards were replaced."""

    name: str  # last part of the path as the instruction has it
    path: str  # as the instruction has it, for --parents
    entries: tuple[Selected, ...]  # folders before their content

    @property
    def is_folder(self) -> bool:
        return self.entries[0].node.is_folder


def select(source: Source, paths: Sequence[str], excluded: Ignored = NONE) -> list[Match]:
    """Return the files of several sources; raises TreeError where one is missing.

    A pattern may match nothing as long as the other sources match something.
    """
    matches = [match for path in paths for match in _matches(source, path, excluded)]
    if paths and not matches:
        raise TreeError(f"{', '.join(map(repr, paths))} is missing in {source.label}")
    return matches


def _matches(source: Source, path: str, excluded: Ignored) -> Iterator[Match]:
    clean = _clean(source, path)
    is_pattern = bool(_WILDCARDS & set(clean))
    matches = list(_expand(source, clean)) if is_pattern else [clean]
    kept = [each for each in matches if not _is_ignored(source, each)]
    if not kept and not is_pattern:
        is_excluded = any(_exists(source, each) for each in matches)
        why = "excluded by the ignore file from" if is_excluded else "missing in"
        raise TreeError(f"{path!r} is {why} {source.label}")
    for each in kept:
        node = source.tree.get(each)
        if node is None:
            raise TreeError(f"{path!r} is missing in {source.label}")
        if not (node.is_folder or node.is_file):
            raise TreeError(f"{path!r} in {source.label} is a special file")
        name = posixpath.basename(each) or "/"
        yield Match(name, each, tuple(_walk(source, node, name, excluded)))


def _clean(source: Source, path: str) -> str:
    if "\0" in path:
        raise TreeError("a source has a NUL character")
    if source.ignored is not NONE or not source.keeps_owners:  # the build context
        depth = 0
        for part in path.lstrip("/").split("/"):
            depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
            if depth < 0:
                raise TreeError(f"{path!r} leads out of the build context")
    return posixpath.normpath("/" + path.lstrip("/")).lstrip("/")


def _exists(source: Source, path: str) -> bool:
    return source.tree.get(path) is not None


def _is_ignored(source: Source, path: str) -> bool:
    if not path or not source.ignored:
        return False
    if not source.ignored.is_ignored(path):
        return False
    return not source.ignored.has_exceptions or not _is_folder(source, path)


def _is_folder(source: Source, path: str) -> bool:
    node = source.tree.get(path)
    return node is not None and node.is_folder


def _expand(source: Source, pattern: str) -> Iterator[str]:
    """Yield the paths that match a pattern; `*` stays within one folder."""
    paths = [""]
    for part in pattern.split("/"):
        following: list[str] = []
        for above in paths:
            if not _WILDCARDS & set(part):
                path = posixpath.join(above, part)
                following += [path] if _exists(source, path) else []
                continue
            node = source.tree.get(above)
            tokens = patterns.parse(part, is_path=True)
            if node is not None and node.is_folder:
                names = (child.parts[-1] for child in source.tree.children(node))
                following += [posixpath.join(above, name) for name in names if patterns.matches(tokens, name)]
        paths = following
    yield from paths


def _walk(source: Source, node: Node, name: str, excluded: Ignored) -> Iterator[Selected]:
    depth, count = len(node.parts), 0
    if not node.is_folder:
        if not (excluded and excluded.is_ignored(name)):
            yield Selected(node, (), source)
        return
    pending = [node]
    while pending:
        here = pending.pop()
        count += 1
        below = here.parts[depth:]
        is_left_out = _left_out(source.ignored, here.parts) or _left_out(excluded, below)
        if not is_left_out or here is node:
            yield Selected(here, below, source)
        may_have_kept = source.ignored.has_exceptions or excluded.has_exceptions
        if here.is_folder and (here is node or not is_left_out or may_have_kept):
            children: list[Node] = []
            for child in source.tree.children(here):
                children.append(child)
                if count + len(pending) + len(children) > MAX_FILES:  # before all of a large folder are in memory
                    raise TreeError(f"{node.name} in {source.label} has more than {MAX_FILES:,} files")
            pending += reversed(children)


def _left_out(rules: Ignored, parts: Sequence[str]) -> bool:
    return bool(rules) and bool(parts) and rules.is_ignored("/".join(parts))


class Hashes:
    """Digests of selected files for the keys of the layer cache; modification times do not count."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], str] = {}

    def of(self, matches: Sequence[Match]) -> str:
        total = hashlib.sha256()
        for match in matches:
            total.update(f"{match.name}\0{match.is_folder}\n".encode(errors="surrogateescape"))
            for each in match.entries:
                total.update(self._line(each).encode(errors="surrogateescape"))
        return total.hexdigest()

    def _line(self, each: Selected) -> str:
        node = each.node
        content = ""
        if node.is_link:
            content = os.readlink(node.path)
        elif node.is_file:
            content = self._file(node)
        owner = f"{each.owner[0]}:{each.owner[1]}"
        return f"{'/'.join(each.below)}\0{node.status.st_mode:o}\0{owner}\0{content}\n"

    def _file(self, node: Node) -> str:
        key = (node.path, node.status.st_mtime_ns, node.status.st_size)
        if key not in self._known:
            with open(node.path, "rb") as file:
                self._known[key] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._known[key]
