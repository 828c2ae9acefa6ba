"""Request and response models of the rule routes; `checks` validates the rules."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from moorage.core.http.models import Input, Output
from moorage.products.rules import patterns
from moorage.products.rules.destinations import MAX_DESTINATION
from moorage.products.rules.patterns import MAX_SOURCE
from moorage.products.rules.tables import StoredHeader, StoredRedirect
from moorage.products.rules.trial import Trial

MAX_RULES = 1_000
MAX_VALUE = 8_000

SourceText = Annotated[str, Field(max_length=MAX_SOURCE, description="A path; `*` and `:name` are wildcards.")]


class HeaderRuleInput(Input):
    source: SourceText
    name: str
    value: str = Field(max_length=MAX_VALUE)

    def rule(self) -> patterns.HeaderRule:
        return patterns.HeaderRule(self.source, self.name, self.value)


class SetHeadersInput(Input):
    headers: list[HeaderRuleInput] = Field(max_length=MAX_RULES)

    def rules(self) -> list[patterns.HeaderRule]:
        return [each.rule() for each in self.headers]


class RedirectRuleInput(Input):
    source: SourceText
    destination: str = Field(
        max_length=MAX_DESTINATION,
        description="A path or a URL; `*` and `:name` are replaced by the text that they matched in the source.",
    )
    status: int = Field(description="301, 302, 303, 307 or 308.")

    def rule(self) -> patterns.RedirectRule:
        return patterns.RedirectRule(self.source, self.destination, self.status)


class SetRedirectsInput(Input):
    redirects: list[RedirectRuleInput] = Field(max_length=MAX_RULES)

    def rules(self) -> list[patterns.RedirectRule]:
        return [each.rule() for each in self.redirects]


class TryRulesInput(Input):
    path: str = Field(min_length=1, max_length=MAX_SOURCE, description="A path, with a query if wanted.")
    redirects: list[RedirectRuleInput] | None = Field(
        default=None, max_length=MAX_RULES, description="Rules to test instead of the stored ones."
    )
    headers: list[HeaderRuleInput] | None = Field(
        default=None, max_length=MAX_RULES, description="Rules to test instead of the stored ones."
    )


class HeaderRule(Output, frozen=True):
    id: int
    source: str
    name: str
    value: str

    @classmethod
    def of(cls, row: StoredHeader) -> HeaderRule:
        return cls(id=row.id, source=row.rule.source, name=row.rule.name, value=row.rule.value)


class RedirectRule(Output, frozen=True):
    id: int
    source: str
    destination: str
    status: int

    @classmethod
    def of(cls, row: StoredRedirect) -> RedirectRule:
        rule = row.rule
        return cls(id=row.id, source=rule.source, destination=rule.destination, status=rule.status)


class TriedRedirect(Output, frozen=True):
    index: int
    source: str
    destination: str
    status: int
    location: str


class TriedHeader(Output, frozen=True):
    index: int
    name: str
    value: str


class TriedRules(Output, frozen=True):
    path: str
    redirects: list[TriedRedirect]
    final: str
    leaves_site: bool
    headers: list[TriedHeader]

    @classmethod
    def of(cls, path: str, trial: Trial) -> TriedRules:
        return cls(
            path=path,
            redirects=[
                TriedRedirect(hop.number, hop.rule.source, hop.rule.destination, hop.rule.status, hop.location)
                for hop in trial.hops
            ],
            final=trial.final,
            leaves_site=trial.leaves_site,
            headers=[TriedHeader(number, rule.name, rule.value) for number, rule in trial.headers],
        )
