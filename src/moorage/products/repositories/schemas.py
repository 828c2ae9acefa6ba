"""Response models of the repository routes."""

from __future__ import annotations

from moorage.core.http.models import Output
from moorage.core.kit.clock import to_wire
from moorage.products.repositories.tables import Repository
from moorage.settings import Settings


class RepositoryItem(Output, frozen=True):
    name: str
    default_branch: str
    size_bytes: int
    url: str
    created_at: str
    pushed_at: str

    @classmethod
    def of(cls, repository: Repository, settings: Settings) -> RepositoryItem:
        name = str(repository.full_name)
        return cls(
            name=name,
            default_branch=repository.default_branch,
            size_bytes=repository.size_bytes,
            url=f"{settings.api_url}/git/{name}.git",
            created_at=to_wire(repository.created_at),
            pushed_at=to_wire(repository.updated_at),
        )
