"""COPY and ADD instructions: sources, key and execution."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from moorage.core.net.targets import TargetPolicy
from moorage.runtime.images.building.cache import key_of
from moorage.runtime.images.building.files import copying, packing, selecting
from moorage.runtime.images.building.files.copying import CopyPlan, Document
from moorage.runtime.images.building.files.selecting import Hashes, Match, Source
from moorage.runtime.images.building.files.tree import TreeError
from moorage.runtime.images.building.files.writing import Budget, LayerWriter
from moorage.runtime.images.building.ports import Workspace
from moorage.runtime.images.building.state import StageState
from moorage.runtime.images.building.steps import downloads
from moorage.runtime.images.building.threads import to_end
from moorage.runtime.images.dockerfile import ignore, words
from moorage.runtime.images.dockerfile import instructions as ins
from moorage.runtime.images.dockerfile.errors import DockerfileError
from moorage.runtime.images.dockerfile.stages import Stage
from moorage.runtime.sandbox.rootfs.spec import CHANGES

OpenSource = Callable[[], Awaitable[Source]]


class CopyHost(Protocol):
    """Parts of a build that its COPY instructions use."""

    hashes: Hashes
    workspace: Workspace
    targets: TargetPolicy

    async def source(self, line: int, name: str, user: Stage) -> tuple[OpenSource, str]: ...

    def budget(self) -> Budget: ...


class CopyStep:
    def __init__(self, build: CopyHost, state: StageState, copy: ins.Copy) -> None:
        self._build = build
        self._state = state
        self._copy = copy
        self._inline = [each for each in copy.sources if each in copy.inline]
        expanded = [state.expand(copy.line, each) for each in copy.sources if each not in copy.inline]
        self._urls = [each for each in expanded if copy.is_add and downloads.is_url(each)]
        self._paths = [each for each in expanded if each not in self._urls]
        self._target = state.expand(copy.line, copy.target)
        self._chown = state.expand(copy.line, copy.chown)
        self._chmod = state.expand(copy.line, copy.chmod)
        self._checksum = state.expand(copy.line, copy.checksum)
        self._open: OpenSource | None = None
        self._selected: list[Match] | None = None
        self._downloads: dict[str, downloads.Download] = {}
        self._inputs: list[object] = []
        self._has_chain = False
        for each in self._paths:
            if copy.is_add and downloads.is_git(each):
                raise DockerfileError(
                    copy.line, f"ADD {each[:100]}: Git repositories are not cloned; use RUN git clone"
                )
        if len(copy.sources) > 1 and not self._target.endswith("/") and self._target not in (".", ".."):
            raise DockerfileError(copy.line, f"the target {self._target!r} of several sources should end with /")

    async def key(self) -> str:
        """Return the key of the step: the content of the build context, or the whole tree of a stage."""
        copy = self._copy
        self._open, chain = await self._build.source(copy.line, copy.from_, self._state.stage)
        self._inputs = [
            "ADD" if copy.is_add else "COPY",
            "" if copy.is_link else self._state.chain,
            *(self._target, self._state.config.workdir, self._chown, self._chmod, copy.keeps_parents, copy.unpacks),
            list(copy.exclude),
            [[copy.inline[each].name, self._text(each)] for each in self._inline],
            [(url, self._checksum or (await self._download(url)).digest) for url in self._urls],
        ]
        self._has_chain = bool(chain)
        return key_of(*self._inputs, chain, self._paths) if chain else await self._content_key()

    async def content_key(self) -> str | None:
        """Return the key by the copied files of a stage; None where `key` is by content already."""
        return await self._content_key() if self._has_chain else None

    async def execute(self, folder: Path, lowers: list[Path]) -> packing.Owners:
        copy = self._copy
        writer = LayerWriter(folder / CHANGES, lowers, self._build.budget())
        plan = CopyPlan(
            await self._matches(),
            [*self._inline_documents(), *[self._document(await self._download(url)) for url in self._urls]],
            target=self._target,
            workdir=self._state.config.workdir,
            chown=self._chown,
            chmod=self._chmod,
            keeps_parents=copy.keeps_parents,
            unpacks=copy.is_add and copy.unpacks is not False,
            unpacks_documents=copy.is_add and copy.unpacks is True,
        )
        await to_end(copying.copy, plan, writer)
        return writer.owners

    async def _content_key(self) -> str:
        matches = await self._matches()
        return key_of(*self._inputs, await to_end(self._build.hashes.of, matches))

    async def _matches(self) -> list[Match]:
        if self._selected is None:
            self._selected = await self._select() if self._paths else []
        return self._selected

    async def _select(self) -> list[Match]:
        assert self._open is not None
        source = await self._open()
        try:
            return await to_end(selecting.select, source, self._paths, ignore.compile_all(self._copy.exclude))
        except ValueError as error:
            raise DockerfileError(self._copy.line, str(error)) from None

    def _text(self, source: str) -> str:
        document = self._copy.inline[source]
        if not document.expands:
            return document.body
        try:
            return words.expand_document(document.body, self._state.env)
        except words.BadWord as error:
            raise DockerfileError(self._copy.line, f"the heredoc {document.name}: {error}") from None

    def _inline_documents(self) -> list[Document]:
        documents: list[Document] = []
        for number, source in enumerate(self._inline):
            path = self._build.workspace.scratch / f"inline-{number}"
            path.write_text(self._text(source))
            documents.append(Document(self._copy.inline[source].name, path, copying.INLINE_MODE))
        return documents

    async def _download(self, url: str) -> downloads.Download:
        if url not in self._downloads:
            path = self._build.workspace.scratch / f"download-{secrets.token_hex(8)}"
            try:
                self._downloads[url] = await downloads.fetch(url, path, self._build.targets, self._checksum)
            except TreeError as error:
                raise DockerfileError(self._copy.line, str(error)) from None
        return self._downloads[url]

    def _document(self, download: downloads.Download) -> Document:
        return Document(download.name, download.path, copying.DOWNLOAD_MODE, download.mtime_ns)
