"""What the pipeline of deployments needs from others, said in as few words as it can be.

`builds` and `repositories` fit these; tests may bring something smaller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class Fetched(Protocol):
    @property
    def sha(self) -> str: ...
    @property
    def branch(self) -> str: ...


class Sources(Protocol):
    async def fetch(
        self,
        org_id: int,
        repository: str,
        *,
        branch: str,
        commit: str | None,
        target: Path,
        say: Callable[[str], None],
    ) -> Fetched: ...


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be built."""

    cache: str
    source: Path
    wanted: str
    language: str
    base_dir: str
    build_dir: str
    build_cmd: str
    start_cmd: str
    entry_point: str
    is_default_build: bool
    env: Mapping[str, str]
    use_caches: bool


@dataclass(frozen=True, slots=True)
class Made:
    """What came of a build."""

    kind: str  # `static` or `container`
    language: str | None
    plan: Mapping[str, Any]
    folder: Path


Build = Callable[[Order, Any], Awaitable[Made]]
Settle = Callable[[], Awaitable[None]]


class DeploymentFailed(Exception):
    """A deployment cannot be finished; the text is a sentence for whoever asked for it."""
