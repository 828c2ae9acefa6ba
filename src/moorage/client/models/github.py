"""Models of the group github. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

import msgspec

from moorage.client.model import Model


class InstallationOut(Model, kw_only=True):
    installation_id: int
    account: str
    proved_by: str
    created_at: str


class SetupBegun(Model, kw_only=True):
    url: str
    authorize_url: str
    expires_at: str


class ConnectInstallationInput(Model, kw_only=True):
    state: str
    code: str
    installation_id: int | msgspec.UnsetType | None = msgspec.UNSET
