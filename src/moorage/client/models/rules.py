"""Models of the group rules. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

import msgspec

from moorage.client.model import List, Model


class HeaderRule(Model, kw_only=True):
    id: int
    source: str
    name: str
    value: str


class RedirectRule(Model, kw_only=True):
    id: int
    source: str
    destination: str
    status: int


class TriedRules(Model, kw_only=True):
    path: str
    redirects: List[TriedRedirect]
    final: str
    leaves_site: bool
    headers: List[TriedHeader]


class TriedRedirect(Model, kw_only=True):
    index: int
    source: str
    destination: str
    status: int
    location: str


class TriedHeader(Model, kw_only=True):
    index: int
    name: str
    value: str


class HeaderRuleInput(Model, kw_only=True):
    # A path; `*` and `:name` are wildcards.
    source: str
    name: str
    value: str


class SetHeadersInput(Model, kw_only=True):
    headers: List[HeaderRuleInput]


class RedirectRuleInput(Model, kw_only=True):
    # A path; `*` and `:name` are wildcards.
    source: str
    # A path or a URL; `*` and `:name` are replaced by the text that they matched in the source.
    destination: str
    # 301, 302, 303, 307 or 308.
    status: int


class SetRedirectsInput(Model, kw_only=True):
    redirects: List[RedirectRuleInput]


class TryRulesInput(Model, kw_only=True):
    # A path, with a query if wanted.
    path: str
    # Rules to test instead of the stored ones.
    redirects: List[RedirectRuleInput] | msgspec.UnsetType | None = msgspec.UNSET
    # Rules to test instead of the stored ones.
    headers: List[HeaderRuleInput] | msgspec.UnsetType | None = msgspec.UNSET
