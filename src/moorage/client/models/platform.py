"""Models of the group platform. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from moorage.client.model import Model


class Health(Model, kw_only=True):
    status: str
    version: str
