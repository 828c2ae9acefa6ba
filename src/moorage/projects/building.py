"""How projects are fetched and built: by `repositories` and `builds`, whose refusals end a deployment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from moorage.builds.builder import Builder
from moorage.builds.ports import BuildFailed, BuildRequest
from moorage.projects.ports import Build, DeploymentFailed, Fetched, Made, Order
from moorage.repositories.fetch import FetchFailed, Sources


class ProjectSources:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    async def fetch(
        self, org_id: int, repository: str, *, branch: str, commit: str | None, target: Path, say: Callable[[str], None]
    ) -> Fetched:
        try:
            return await self._sources.fetch(org_id, repository, branch=branch, commit=commit, target=target, say=say)
        except FetchFailed as error:
            raise DeploymentFailed(str(error)) from error


def building_with(builder: Builder) -> Build:
    async def build(order: Order, log: Any) -> Made:
        request = BuildRequest(
            cache=order.cache,
            source=order.source,
            wanted=order.wanted,  # type: ignore[arg-type]
            language=order.language,
            base_dir=order.base_dir,
            build_dir=order.build_dir,
            build_cmd=order.build_cmd,
            start_cmd=order.start_cmd,
            entry_point=order.entry_point,
            is_default_build=order.is_default_build,
            env=order.env,
            use_caches=order.use_caches,
        )
        try:
            built = await builder.build(request, log)
        except BuildFailed as error:
            raise DeploymentFailed(str(error)) from error
        return Made(built.plan.kind, built.plan.language, msgspec.to_builtins(built.plan), built.folder)

    return build
