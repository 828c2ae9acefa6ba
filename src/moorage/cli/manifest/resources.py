"""Sections of moorage.toml: one row for each kind of resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from moorage.cli.manifest.fields import Field, Shape, derive
from moorage.client import models
from moorage.client.model import Model


@dataclass(frozen=True, eq=False)
class Resource:
    """A kind of resource: `kind` is its name in messages, `section` its table in the file."""

    kind: str
    section: str
    create: tuple[type[Model], ...]
    update: type[Model] | None = None
    identity: tuple[str, ...] = ("name",)  # keys that identify a resource; each combination occurs once
    left_out: tuple[str, ...] = ()  # fields of the API that no file has
    renamed: Mapping[str, str] = field(default_factory=dict)
    optional: tuple[str, ...] = ()  # required by the API, and filled in by the command where the file has none
    added: tuple[Field, ...] = ()  # keys that the command translates to other calls
    is_of_project: bool = False  # needs `[project]`
    children: tuple[Resource, ...] = ()

    @cached_property
    def fields(self) -> dict[str, Field]:
        fields = derive(self.create, self.update, left_out=self.left_out, renamed=self.renamed)
        fields |= {each.key: each for each in self.added}
        for key in self.optional:
            fields[key] = Field(**{**_values(fields[key]), "is_required": False})
        return fields

    def name_of(self, entry: Mapping[str, Any]) -> str:
        return " ".join(str(entry[key]) for key in self.identity if key in entry)


def _values(each: Field) -> dict[str, Any]:
    return {name: getattr(each, name) for name in Field.__slots__}


PROJECT = Resource(
    "project",
    "project",
    (models.AutoInput, models.ContainerInput, models.StaticInput),
    models.UpdateProjectInput,
    renamed={"slug": "kind"},
    optional=("repository-name",),
)
DATABASE = Resource(
    "database",
    "databases",
    (models.CreateDatabaseInput,),
    models.ChangeTierInput,
    left_out=("password", "project_id", "backup", "expected_current_tier", "confirm_downgrade_to_free"),
    added=(
        Field(
            "linked",
            "linked",
            Shape.PLAIN,
            bool,
            is_updatable=False,
            text="Whether the project gets its address as a secret; true unless it is set.",
        ),
        Field("backups", "backups", Shape.TABLE, models.UpdateBackupsInput, text="Backups by schedule."),
    ),
)
DOMAIN = Resource(
    "domain", "domains", (models.AddCustomDomainInput,), identity=("domain",), is_of_project=True
)  # fmt: skip
REDIRECT = Resource(
    "redirect", "redirects", (models.RedirectRuleInput,), identity=("source",), is_of_project=True
)  # fmt: skip
HEADER = Resource(
    "header", "headers", (models.HeaderRuleInput,), identity=("source", "name"), is_of_project=True
)  # fmt: skip
SCHEDULE = Resource(
    "schedule",
    "schedules",
    (models.CreateScheduledFunctionInput,),
    models.UpdateScheduledFunctionInput,
    left_out=("payload",),
)
CRONJOB = Resource(
    "cronjob",
    "cronjobs",
    (models.CreateCronjobInput,),
    models.UpdateCronjobInput,
    left_out=("secrets", "image_source"),
)
ALERT = Resource(
    "alert",
    "alerts",
    (models.CreateAlertInput,),
    models.UpdateAlertInput,
    identity=("metric", "severity"),
    left_out=("acknowledged",),
)
MONITOR = Resource(
    "monitor",
    "monitors",
    (models.CreateMonitorInput,),
    models.UpdateMonitorInput,
    left_out=("project_id",),
    children=(ALERT,),
)

# In the order in which they are applied, after the project itself.
SECTIONS = (DATABASE, DOMAIN, REDIRECT, HEADER, SCHEDULE, CRONJOB, MONITOR)
BY_SECTION = {each.section: each for each in SECTIONS}
RULES = (REDIRECT, HEADER)
# Sections of resources that belong to the organization: only names in `[removed]` are ever deleted.
REMOVABLE = ("schedules", "cronjobs")
