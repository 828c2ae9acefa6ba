"""Request and response bodies of connected GitHub accounts."""

from __future__ import annotations

from pydantic import Field

from moorage.core.http.models import Input, Output, QueryInput, optional
from moorage.core.kit.clock import to_wire
from moorage.products.repositories.github.bindings import MAX_INSTALLATION_ID
from moorage.products.repositories.tables import Binding


class SetupBegun(Output, frozen=True):
    url: str  # installation page of the app
    authorize_url: str  # for an account that has installed the app
    expires_at: str


class ConnectInstallationInput(Input):
    state: str = Field(min_length=1, max_length=1024)
    code: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,255}$")
    installation_id: int | None = optional(ge=1, le=MAX_INSTALLATION_ID)


class SetupQuery(QueryInput):
    """Query that GitHub adds to the callback URL, with GitHub's underscores."""

    state: str = ""
    code: str = ""
    installation_id: str = Field("", alias="installation_id")


class InstallationOut(Output, frozen=True):
    installation_id: int
    account: str
    proved_by: str
    created_at: str

    @classmethod
    def of(cls, binding: Binding) -> InstallationOut:
        return cls(binding.installation_id, binding.login, binding.proved_by, to_wire(binding.created_at))
