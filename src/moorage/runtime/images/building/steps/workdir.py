"""WORKDIR instructions: they create the folder where the image does not have it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from moorage.runtime.images.building.cache import key_of
from moorage.runtime.images.building.files import accounts, packing
from moorage.runtime.images.building.files.writing import Budget, LayerWriter
from moorage.runtime.images.building.state import StageState
from moorage.runtime.images.building.threads import to_end
from moorage.runtime.images.dockerfile import instructions as ins
from moorage.runtime.sandbox.rootfs.spec import CHANGES


class WorkdirHost(Protocol):
    def budget(self) -> Budget: ...


class WorkdirStep:
    def __init__(self, build: WorkdirHost, state: StageState, workdir: ins.Workdir) -> None:
        self._build = build
        self._chain = state.chain
        self._path = state.absolute(state.expand(workdir.line, workdir.path))
        self._user = state.config.user
        state.config.set_workdir(self._path)

    async def key(self) -> str:
        return key_of("WORKDIR", self._chain, self._path, self._user)

    async def content_key(self) -> str | None:
        return None

    async def execute(self, folder: Path, lowers: list[Path]) -> packing.Owners:
        writer = LayerWriter(folder / CHANGES, lowers, self._build.budget())

        def make() -> None:
            owner = accounts.owner(writer.tree, self._user) if self._user else (0, 0)
            writer.ensure_folder(writer.tree.resolve(self._path), owner)

        await to_end(make)
        return writer.owners
