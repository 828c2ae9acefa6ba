"""Applies differences in order; stops at the first error and reports the changes before it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from moorage.cli.manifest.changes import Action, Change, problems
from moorage.cli.manifest.fields import Field, Shape, to_input
from moorage.cli.manifest.reading import Entry, Manifest, ManifestError
from moorage.cli.manifest.resources import ALERT, CRONJOB, DATABASE, HEADER, MONITOR, PROJECT, REDIRECT, SCHEDULE
from moorage.cli.manifest.showing import title_of
from moorage.client import models
from moorage.client.errors import ApiError

if TYPE_CHECKING:
    from moorage.client import Client

WAIT_S = 60  # a database server starts and stops within a few seconds
KINDS: dict[str, type[Any]] = {
    "auto": models.AutoInput,
    "container": models.ContainerInput,
    "static": models.StaticInput,
}


def apply(
    client: Client,
    changes: list[Change],
    *,
    prune: bool = False,
    on_applied: Callable[[Change], None] = lambda _: None,
) -> list[Change]:
    """Apply the changes and return those that were applied.

    Raises ManifestError before anything is changed where the file cannot be applied. An error of the API names the
    resource, its line and the changes that were applied before it. Safe to repeat: plan again after an error.
    """
    if found := problems(changes):
        raise ManifestError(found)
    applier = _Applier(client, changes, prune=prune)
    applied: list[Change] = []
    for change in changes:
        if not change.is_due(prune=prune):
            continue
        try:
            applier.run(change)
        except ApiError as error:
            raise explained(error, change, applied) from error
        applied.append(change)
        on_applied(change)
    return applied


def project_input(
    manifest: Manifest,
    *,
    repository_name: str | None = None,
    env: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
) -> models.CreateProjectInput:
    """Return the input that creates the project of the file; arguments have precedence over the file.

    Settings that its kind accepts only in a change, such as the health check of an `auto` project, are left to the
    next `plan` and `apply`.
    """
    entry = dict(manifest.project or {})
    if repository_name is not None:
        entry["repository-name"] = repository_name
    if env:
        entry["env"] = {**entry.get("env", {}), **env}
    return _project_input(entry, secrets or {})


def _project_input(entry: Entry, secrets: Mapping[str, str]) -> models.CreateProjectInput:
    kind = entry.pop("kind", "container" if "public-image" in entry else "auto")
    if kind == "container":
        entry.setdefault("language", "auto")
    body: Any = to_input(KINDS[kind], entry, PROJECT.fields)
    if secrets:
        body.secrets = [models.EnvVar(name=name, value=value) for name, value in secrets.items()]
    created: models.CreateProjectInput = body
    return created


class _Applier:
    def __init__(self, client: Client, changes: list[Change], *, prune: bool) -> None:
        self._client = client
        self._prune = prune
        self._monitors = {each.name: each.ref for each in changes if each.kind == MONITOR.kind}
        self._project: models.ProjectDetail | None = None

    def run(self, change: Change) -> None:
        methods: dict[tuple[str, Action], Callable[[Change], object]] = {
            ("project", Action.CREATE): self._create_project,
            ("project", Action.UPDATE): self._update_project,
            ("database", Action.CREATE): self._create_database,
            ("database", Action.UPDATE): self._update_database,
            ("database", Action.DELETE): lambda each: self._client.databases.delete(each.ref, wait=WAIT_S),
            ("domain", Action.CREATE): self._add_domain,
            ("domain", Action.DELETE): lambda each: self._client.domains.delete(each.ref),
            ("redirects", Action.CREATE): self._set_redirects,
            ("redirects", Action.UPDATE): self._set_redirects,
            ("headers", Action.CREATE): self._set_headers,
            ("headers", Action.UPDATE): self._set_headers,
            ("schedule", Action.CREATE): self._create_schedule,
            ("schedule", Action.UPDATE): self._update_schedule,
            ("schedule", Action.DELETE): lambda each: self._client.schedules.delete(each.ref),
            ("cronjob", Action.CREATE): self._create_cronjob,
            ("cronjob", Action.UPDATE): self._update_cronjob,
            ("cronjob", Action.DELETE): lambda each: self._client.cronjobs.delete(each.ref, wait=WAIT_S),
            ("monitor", Action.CREATE): self._create_monitor,
            ("monitor", Action.UPDATE): self._update_monitor,
            ("monitor", Action.DELETE): lambda each: self._client.monitors.delete(each.ref),
            ("alert", Action.CREATE): self._create_alert,
            ("alert", Action.UPDATE): self._update_alert,
            ("alert", Action.DELETE): lambda each: self._client.monitors.delete_alert(each.ref),
        }
        methods[change.kind, change.action](change)

    def _live_project(self, change: Change) -> models.ProjectDetail | None:
        if self._project is None and change.project is not None:
            self._project = self._client.projects.read(change.project)
        return self._project

    def _create_project(self, change: Change) -> None:
        if not change.entry.keys() & {"repository-name", "public-image"}:
            advice = "`moorage deploy` creates it from this folder"
            raise ManifestError([f"{change.where}: project {change.name} does not exist yet; {advice}"])
        body = _project_input(dict(change.entry), {})
        self._client.projects.create(body=body)
        sent = {each.name for each in msgspec.structs.fields(type(body))}
        later = {key: value for key, value in change.entry.items() if PROJECT.fields[key].name not in sent}
        if later:
            values = to_input(models.UpdateProjectInput, later, PROJECT.fields)
            self._client.projects.update(change.name, **arguments(values))

    def _update_project(self, change: Change) -> None:
        self._client.projects.update(change.ref, **self._changed(change, models.UpdateProjectInput, PROJECT.fields))

    def _changed(self, change: Change, model: type[Any], fields: Mapping[str, Field]) -> dict[str, Any]:
        """Return the changed fields as arguments of the client; tables are whole, with the stored values in them."""
        keys = {each.key.partition(".")[0] for each in change.due_fields(prune=self._prune)}
        entry: Entry = {}
        for key in keys & change.entry.keys():
            value = change.entry[key]
            if fields[key].shape is Shape.TABLE or (fields[key].shape is Shape.PAIRS and not self._prune):
                value = {**change.live.get(key, {}), **value}
            entry[key] = from_environment(fields[key], value)
        return arguments(to_input(model, entry, fields))

    def _create_database(self, change: Change) -> None:
        entry = dict(change.entry)
        backups = entry.pop("backups", {})
        body = to_input(models.CreateDatabaseInput, entry, DATABASE.fields)
        if entry.get("linked") and (project := self._live_project(change)) is not None:
            body.project_id = project.id
        if backups.get("enabled"):
            body.backup = "enabled"
        self._client.databases.create(**arguments(body), wait=WAIT_S)
        if backups.keys() - {"enabled"}:
            self._set_backups(change.name, backups)

    def _update_database(self, change: Change) -> None:
        keys = {each.key.partition(".")[0] for each in change.fields}
        if "instance-type" in keys:
            self._client.databases.change_tier(change.ref, instance_type=change.entry["instance-type"], wait=WAIT_S)
        if "backups" in keys:
            self._set_backups(change.ref, change.entry["backups"])

    def _set_backups(self, name: str, backups: Entry) -> None:
        values = to_input(models.UpdateBackupsInput, backups, DATABASE.fields["backups"].table)
        self._client.databases.update_backups(name, **arguments(values))

    def _add_domain(self, change: Change) -> None:
        assert change.project is not None
        self._client.domains.add(change.project, domain=change.name)

    def _rules(self, change: Change, model: type[Any], fields: Mapping[str, Field]) -> list[Any]:
        """Return the whole new list: rules of the file, and those of the platform alone unless they are pruned."""
        wanted = change.entry["rules"]
        identity = REDIRECT if model is models.RedirectRuleInput else HEADER
        names = {identity.name_of(each) for each in wanted}
        kept = [] if self._prune else [each for each in change.live["rules"] if identity.name_of(each) not in names]
        return [to_input(model, each, fields) for each in (*wanted, *kept)]

    def _set_redirects(self, change: Change) -> None:
        rules = self._rules(change, models.RedirectRuleInput, REDIRECT.fields)
        self._client.rules.set_redirects(change.name, redirects=rules)

    def _set_headers(self, change: Change) -> None:
        rules = self._rules(change, models.HeaderRuleInput, HEADER.fields)
        self._client.rules.set_header(change.name, headers=rules)

    def _create_schedule(self, change: Change) -> None:
        body = to_input(models.CreateScheduledFunctionInput, change.entry, SCHEDULE.fields)
        self._client.schedules.create(**arguments(body))

    def _update_schedule(self, change: Change) -> None:
        values = self._changed(change, models.UpdateScheduledFunctionInput, SCHEDULE.fields)
        self._client.schedules.update(change.ref, **values)

    def _create_cronjob(self, change: Change) -> None:
        body = to_input(models.CreateCronjobInput, change.entry, CRONJOB.fields)
        if "public-image" in change.entry:
            body.image_source = "public_image"
        elif body.repository_name is msgspec.UNSET and (project := self._live_project(change)) is not None:
            body.repository_name = project.repository_name or msgspec.UNSET
        self._client.cronjobs.create(**arguments(body))

    def _update_cronjob(self, change: Change) -> None:
        values = self._changed(change, models.UpdateCronjobInput, CRONJOB.fields)
        self._client.cronjobs.update(change.ref, **values)

    def _create_monitor(self, change: Change) -> None:
        body = to_input(models.CreateMonitorInput, change.entry, MONITOR.fields)
        project = self._live_project(change)
        if project is not None:
            body.project_id = project.id
            body.url = body.url.replace(f"<{project.name}>", project.project_url.rstrip("/"))
        self._monitors[change.name] = self._client.monitors.create(**arguments(body)).id

    def _update_monitor(self, change: Change) -> None:
        self._client.monitors.update(change.ref, **self._changed(change, models.UpdateMonitorInput, MONITOR.fields))

    def _create_alert(self, change: Change) -> None:
        entry = {key: from_environment(ALERT.fields[key], value) for key, value in change.entry.items()}
        body = to_input(models.CreateAlertInput, entry, ALERT.fields)
        created = self._client.monitors.create_alert(self._monitors[change.parent or ""], **arguments(body))
        if entry.get("enabled") is False:
            self._client.monitors.update_alert(created.id, enabled=False)

    def _update_alert(self, change: Change) -> None:
        self._client.monitors.update_alert(change.ref, **self._changed(change, models.UpdateAlertInput, ALERT.fields))


def from_environment(field: Field, value: Any) -> Any:
    return os.environ[value["env"]] if field.shape is Shape.HIDDEN else value


def arguments(model: Any) -> dict[str, Any]:
    """Return the fields of an input model that are set, as arguments of a method of the client."""
    values = {each.name: getattr(model, each.name) for each in msgspec.structs.fields(type(model))}
    return {name: value for name, value in values.items() if value is not msgspec.UNSET}


def explained(error: ApiError, change: Change, applied: list[Change]) -> ApiError:
    """Return an error of the API with the resource, the lines of its fields, and the changes before it."""
    before = f" (already applied: {', '.join(map(title_of, applied))})" if applied else ""
    message = f"cannot {change.action} {title_of(change)} at {change.where}: {error.message}{before}"
    fields = {_located(change, to_kebab(name)): text for name, text in error.fields.items()}
    return type(error)(error.status, message, fields, error.trace_id)


def _located(change: Change, key: str) -> str:
    return f"{change.where_of(key)} {key}"


def to_kebab(name: str) -> str:
    """Return a field of the API as a key of the file: `autoScaling.maxReplicas` is `auto-scaling.max-replicas`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: f"-{match[1].lower()}", name)
