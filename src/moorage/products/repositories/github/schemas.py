"""Names on the wire of connected GitHub accounts."""

from __future__ import annotations

from pydantic import Field

from moorage.core.http.models import Input, Output, QueryInput, optional
from moorage.core.kit.clock import to_wire
from moorage.products.repositories.github.bindings import MOST_NUMBER
from moorage.products.repositories.tables import Binding


class SetupBegun(Output, frozen=True):
    url: str  # the installation page of the app
    authorize_url: str  # for an account that has the app already
    expires_at: str


class ConnectInstallationInput(Input):
    state: str = Field(min_length=1, max_length=1024)
    code: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,255}$")
    installation_id: int | None = optional(ge=1, le=MOST_NUMBER)


class SetupQuery(QueryInput):
    """The query that GitHub adds to the callback's address; GitHub's names have underscores."""

    state: str = ""
    code: str = ""
    installation_id: str = Field("", alias="installation_id")


class InstallationOut(Output, frozen=True):
    installation_id: int
    account: str
    proved_by: str
    created_at: str

    @classmethod
    def of(cls, bound: Binding) -> InstallationOut:
        return cls(bound.installation_id, bound.login, bound.proved_by, to_wire(bound.created_at))
