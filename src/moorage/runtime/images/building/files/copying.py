"""Executes COPY and ADD: places selected files, inline documents and archives in a layer."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from moorage.core.kit.records import dataclass
from moorage.runtime.images.building.files import accounts, archives
from moorage.runtime.images.building.files.selecting import Match, Selected
from moorage.runtime.images.building.files.tree import TreeError
from moorage.runtime.images.building.files.writing import LayerWriter, Owner, Parts

INLINE_MODE = 0o644
DOWNLOAD_MODE = 0o600


@dataclass(frozen=True, slots=True)
class Document:
    """A file that is not in a tree: a heredoc or a download."""

    name: str
    path: Path
    mode: int
    mtime_ns: int = field(default_factory=time.time_ns)


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """One COPY or ADD with its variables replaced and its sources selected."""

    matches: Sequence[Match]
    documents: Sequence[Document]
    target: str
    workdir: str
    chown: str = ""
    chmod: str = ""
    keeps_parents: bool = False
    unpacks: bool = False  # archives of the matches
    unpacks_documents: bool = False


def copy(plan: CopyPlan, writer: LayerWriter) -> None:
    """Write the files to the layer; raises TreeError."""
    _Copier(plan, writer).run()


class _Copier:
    def __init__(self, plan: CopyPlan, writer: LayerWriter) -> None:
        self._plan = plan
        self._writer = writer
        self._owner: Owner | None = accounts.owner(writer.tree, plan.chown) if plan.chown else None
        self._target = writer.tree.resolve(plan.target, plan.workdir)
        self._is_folder = self._ends_as_folder() or self._exists_as_folder()

    def run(self) -> None:
        plan = self._plan
        if len(plan.matches) + len(plan.documents) > 1 and not self._is_folder:
            raise TreeError(f"the target {plan.target!r} of several sources should end with /")
        for match in plan.matches:
            if plan.unpacks and not match.is_folder and archives.is_archive(match.entries[0].node.path, self._writer):
                self._unpack(match.entries[0].node.path)
            elif match.is_folder or match.entries:
                self._copy_match(match)
        for document in plan.documents:
            if plan.unpacks_documents and archives.is_archive(str(document.path), self._writer):
                self._unpack(str(document.path))
            else:
                self._copy_document(document)

    def _ends_as_folder(self) -> bool:
        return posixpath.basename(self._plan.target) in ("", ".", "..")

    def _exists_as_folder(self) -> bool:
        node = self._writer.tree.find(self._target)
        return node is not None and node.is_folder

    def _unpack(self, path: str) -> None:
        self._writer.ensure_folder(self._target, self._owner or (0, 0))
        archives.unpack(path, self._writer, self._target, self._owner)

    def _copy_match(self, match: Match) -> None:
        base = self._target
        if self._plan.keeps_parents:
            above = posixpath.dirname(match.path) if not match.is_folder else match.path
            base = (*base, *(part for part in above.split("/") if part))
            self._writer.ensure_folder(base, self._owner or (0, 0))
        if not match.is_folder:
            is_inside = self._is_folder or self._plan.keeps_parents
            self._put(match.entries[0], (*base, match.name) if is_inside else base)
            return
        for each in match.entries:
            self._put(each, (*base, *each.below))

    def _put(self, each: Selected, parts: Parts) -> None:
        owner = self._owner or each.owner
        self._writer.ensure_folder(parts[:-1], self._owner or (0, 0))
        node = each.node
        if node.is_folder and not each.below:  # The target of a folder's content has no attributes of the source.
            self._writer.ensure_folder(parts, self._owner or (0, 0))
            return
        chmod = self._plan.chmod
        mode = accounts.mode(chmod, node.mode, is_folder=node.is_folder) if chmod and not node.is_link else None
        self._writer.put_node(parts, node, owner, mode)

    def _copy_document(self, document: Document) -> None:
        parts = (*self._target, document.name) if self._is_folder else self._target
        owner = self._owner or (0, 0)
        self._writer.ensure_folder(parts[:-1], owner)
        chmod = self._plan.chmod
        mode = accounts.mode(chmod, document.mode, is_folder=False) if chmod else document.mode
        self._writer.put_file(parts, str(document.path), owner, mode, document.mtime_ns)
