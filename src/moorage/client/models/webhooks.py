"""Models of the group webhooks. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from moorage.client.model import Model


class Received(Model, kw_only=True):
    received: bool
