"""Compares moorage.toml with the platform. Only reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from moorage.cli.manifest.changes import Action, Change, FieldChange
from moorage.cli.manifest.fields import Field, Shape, from_output
from moorage.cli.manifest.reading import Entry, Manifest
from moorage.cli.manifest.resources import (
    ALERT,
    CRONJOB,
    DATABASE,
    DOMAIN,
    HEADER,
    MONITOR,
    PROJECT,
    REDIRECT,
    SCHEDULE,
    Resource,
)
from moorage.client.errors import NotFound

if TYPE_CHECKING:
    from moorage.client import Client
    from moorage.client.models import DatabaseDetail, MonitorOut, ProjectDetail

T = TypeVar("T")

AUTO = "auto"
DEFAULT_SEVERITY = "warning"
NOT_SET = "is not set"
DELETING = "deleting"
FIXED = "only a new {kind} can have another value: change the file, or delete the {kind} and apply again"


def plan(client: Client, manifest: Manifest) -> list[Change]:
    """Return the difference of every resource of the file, in the order of `apply`; deletions come last."""
    return _Planner(client, manifest).run()


def find(read: Callable[[], T]) -> T | None:
    """Return a resource, or None where it does not exist."""
    try:
        return read()
    except NotFound:
        return None


class _Planner:
    def __init__(self, client: Client, manifest: Manifest) -> None:
        self._client = client
        self._manifest = manifest
        self._project: ProjectDetail | None = None

    def run(self) -> list[Change]:
        name = self._manifest.project_name
        if name is not None:
            self._project = find(lambda: self._client.projects.read(name))
        sections = {
            DATABASE: self._databases,
            DOMAIN: self._domains,
            REDIRECT: self._redirects,
            HEADER: self._headers,
            SCHEDULE: self._schedules,
            CRONJOB: self._cronjobs,
            MONITOR: self._monitors,
        }
        changes = self._project_changes() if name is not None else []
        for resource, compare in sections.items():
            if resource.section in self._manifest.sections or resource.section in self._manifest.removed:
                changes += compare()
        for change in changes:
            change.project = name
            change.manifest = self._manifest
            change.fields = [each.masked() for each in change.fields]
        return sorted(changes, key=_order)

    # Parts of a comparison.

    def _entries(self, resource: Resource) -> Iterable[tuple[tuple[str | int, ...], Entry]]:
        for number, entry in enumerate(self._manifest.sections.get(resource.section, [])):
            yield (resource.section, number), entry

    def _compare(
        self, resource: Resource, path: tuple[str | int, ...], entry: Entry, live: Entry | None, ref: Any = None
    ) -> Change:
        """Return the change of one entry; `live` is None where the resource does not exist."""
        name = resource.name_of(entry)
        if live is None:
            fields = [FieldChange(key, None, value) for key, value in flat(entry, resource) if key != "name"]
            fields += [hidden_change(key, value) for key, value in hidden(entry, resource)]
            return Change(resource.kind, name, Action.CREATE, fields, path=path, entry=entry)
        fields = [each for key, value in entry.items() if (field := resource.fields.get(key)) is not None
                  for each in differences(field, live.get(key), value, resource.kind)]  # fmt: skip
        action = Action.UPDATE if fields else Action.NOTHING
        return Change(resource.kind, name, action, fields, path=path, entry=entry, live=live, ref=ref)

    def _surplus(self, resource: Resource, name: str, ref: Any, live: Entry, *, parent: str | None = None) -> Change:
        """Return the deletion of a resource of the project that the file does not have."""
        fields = [FieldChange(key, value, None) for key, value in flat(live, resource) if key != "name"]
        return Change(
            resource.kind,
            name,
            Action.DELETE,
            fields,
            needs_prune=True,
            path=(resource.section,),
            live=live,
            ref=ref,
            parent=parent,
        )

    # Resources.

    def _project_changes(self) -> list[Change]:
        entry, path = self._manifest.project or {}, (PROJECT.section,)
        project = self._project
        live = from_output(project, PROJECT.fields) if project is not None else None
        wanted = {key: value for key, value in entry.items() if key != "secrets"}
        if live is not None and (wanted.get("kind") == AUTO or "kind" not in live):
            wanted.pop("kind", None)  # found out by the platform, or not yet
        change = self._compare(PROJECT, path, wanted, live, project.name if project is not None else None)
        return [change, *self._secret_changes(entry.get("secrets", []))]

    def _secret_changes(self, names: list[str]) -> list[Change]:
        known: set[str] = set()
        if self._project is not None and names:
            known = {each.name for each in self._client.projects.list_secrets(self._project.name)}
        step = f"set it with: moorage secrets set {self._manifest.project_name} "
        return [
            Change("secret", name, Action.NOTHING, problem=f"secret {name} {NOT_SET}; {step}{name}", path=path)
            for name in names
            if name not in known and (path := (PROJECT.section, "secrets"))
        ]

    def _databases(self) -> list[Change]:
        changes, named = [], set()
        for path, entry in self._entries(DATABASE):
            named.add(entry["name"])
            database = find(lambda entry=entry: self._client.databases.read(entry["name"]))  # type: ignore[misc]
            live = (
                database_entry(self._client, database, self._project, has_backups="backups" in entry)
                if database is not None
                else None
            )
            changes.append(self._compare(DATABASE, path, self._with_link(entry), live, entry["name"]))
        if self._project is not None:
            for item in self._client.databases.iterate():
                if item.name is not None and item.name not in named and item.status != DELETING:
                    database = find(lambda item=item: self._client.databases.read(item.name))  # type: ignore[misc]
                    if database is not None and database.project_id == self._project.id:
                        changes.append(
                            self._surplus(
                                DATABASE, item.name, item.name, database_entry(self._client, database, self._project)
                            )
                        )
        return changes

    def _with_link(self, entry: Entry) -> Entry:
        return {**entry, "linked": entry.get("linked", True)} if self._manifest.project is not None else entry

    def _domains(self) -> list[Change]:
        known = {}
        if self._project is not None:
            known = {each.domain: each for each in self._client.domains.list(self._project.name)}
        wanted = {host_of(entry["domain"]): path for path, entry in self._entries(DOMAIN)}
        changes = [
            self._compare(DOMAIN, path, {"domain": name}, {"domain": name} if name in known else None)
            for name, path in wanted.items()
        ]
        return changes + [
            self._surplus(DOMAIN, name, each.id, {"domain": name}) for name, each in known.items() if name not in wanted
        ]

    def _redirects(self) -> list[Change]:
        stored = self._client.rules.list_redirects(self._project.name) if self._project is not None else []
        return [self._rules(REDIRECT, stored)]

    def _headers(self) -> list[Change]:
        stored = self._client.rules.list_header(self._project.name) if self._project is not None else []
        return [self._rules(HEADER, stored)]

    def _rules(self, resource: Resource, stored: list[Any]) -> Change:
        """Return one change for an ordered list of rules; a rule of the platform alone stays at its end."""
        live = [from_output(each, resource.fields) for each in stored]
        wanted = self._manifest.sections[resource.section]
        before, after = ({resource.name_of(each): each for each in rules} for rules in (live, wanted))
        fields = [
            FieldChange(name, rule_text(before.get(name)), rule_text(entry))
            for name, entry in after.items()
            if before.get(name) != entry
        ]
        surplus = [name for name in before if name not in after]
        if not fields and [name for name in before if name in after] != list(after):
            fields.append(FieldChange("order", " ".join(before), " ".join(after)))
        elif not fields and list(before)[: len(after)] != list(after):
            fields.append(FieldChange("order", " ".join(before), " ".join((*after, *surplus))))
        fields += [FieldChange(name, rule_text(before[name]), None, needs_prune=True) for name in surplus]
        action = Action.NOTHING if not fields else Action.UPDATE if live else Action.CREATE
        return Change(
            resource.section,
            self._manifest.project_name or "",
            action,
            fields,
            path=(resource.section,),
            entry={"rules": wanted},
            live={"rules": live},
        )

    def _schedules(self) -> list[Change]:
        known = {each.name: each for each in self._client.schedules.list()}
        changes = []
        for path, entry in self._entries(SCHEDULE):
            stored = known.get(entry["name"])
            live = from_output(stored, SCHEDULE.fields) if stored is not None else None
            if live is not None and stored is not None:
                live["function"] = (
                    stored.function_id if entry["function"] == stored.function_id else stored.function_name
                )
            changes.append(self._compare(SCHEDULE, path, entry, live, stored.id if stored is not None else None))
        for name in self._manifest.removed.get(SCHEDULE.section, []):
            if name in known:
                live = from_output(known[name], SCHEDULE.fields)
                changes.append(self._surplus(SCHEDULE, name, known[name].id, live))
        return changes

    def _cronjobs(self) -> list[Change]:
        changes = []
        for path, entry in self._entries(CRONJOB):
            cronjob = find(lambda entry=entry: self._client.cronjobs.read(entry["name"]))  # type: ignore[misc]
            live = from_output(cronjob, CRONJOB.fields) if cronjob is not None else None
            changes.append(self._compare(CRONJOB, path, self._with_repository(entry), live, entry["name"]))
        for name in self._manifest.removed.get(CRONJOB.section, []):
            cronjob = find(lambda name=name: self._client.cronjobs.read(name))  # type: ignore[misc]
            if cronjob is not None and cronjob.status != DELETING:
                changes.append(self._surplus(CRONJOB, name, name, from_output(cronjob, CRONJOB.fields)))
        return changes

    def _with_repository(self, entry: Entry) -> Entry:
        """Return a cronjob that is built from the project's repository unless it names another source."""
        if "public-image" in entry or "repository-name" in entry:
            return entry
        repository = self._project.repository_name if self._project is not None else None
        return {**entry, "repository-name": repository} if repository else entry

    def _monitors(self) -> list[Change]:
        known = self._client.monitors.list()
        changes, matched = [], set()
        for path, entry in self._entries(MONITOR):
            monitor = self._find_monitor(known, entry["name"])
            if monitor is not None:
                matched.add(monitor.id)
            live = from_output(monitor, MONITOR.fields) if monitor is not None else None
            wanted = {key: value for key, value in entry.items() if key != ALERT.section}
            wanted["url"] = self._address(entry["url"])
            if wanted.get("status-codes") == []:
                del wanted["status-codes"]  # none at all means the default
            changes.append(self._compare(MONITOR, path, wanted, live, monitor.id if monitor is not None else None))
            if ALERT.section in entry:
                changes += self._alerts((*path, ALERT.section), entry, monitor)
        for each in known:
            if self._project is not None and each.project_id == self._project.id and each.id not in matched:
                changes.append(self._surplus(MONITOR, each.name or "", each.id, from_output(each, MONITOR.fields)))
        return changes

    def _find_monitor(self, known: list[MonitorOut], name: str) -> MonitorOut | None:
        """Return a monitor by name; names need not be unique, so one of the project goes first."""
        same = [each for each in known if each.name == name]
        own = [each for each in same if self._project is not None and each.project_id == self._project.id]
        return next(iter(own or same), None)

    def _address(self, url: str) -> str:
        """Return the URL of a monitor; a path is one of the project's address."""
        if not url.startswith("/"):
            return url
        base = self._project.project_url if self._project is not None else f"<{self._manifest.project_name}>"
        return f"{base.rstrip('/')}{url}"

    def _alerts(self, path: tuple[str | int, ...], monitor: Entry, stored: MonitorOut | None) -> list[Change]:
        known: dict[str, Any] = {}
        if stored is not None:
            for each in self._client.monitors.list_alerts(stored.id):
                known.setdefault(f"{each.metric} {each.severity}", each)
        changes, named = [], set()
        for number, entry in enumerate(monitor[ALERT.section]):
            entry = {"severity": DEFAULT_SEVERITY, **entry}
            name = ALERT.name_of(entry)
            named.add(name)
            live = self._alert(known[name], entry) if name in known else None
            change = self._compare(ALERT, (*path, number), entry, live, known[name].id if name in known else None)
            change.parent = monitor["name"]
            changes.append(change)
        for name, each in known.items():
            if name not in named:
                surplus = self._surplus(ALERT, name, each.id, from_output(each, ALERT.fields), parent=monitor["name"])
                changes.append(surplus)
        return changes

    @staticmethod
    def _alert(stored: Any, entry: Entry) -> Entry:
        """Return an alert of the platform; a stored address counts as the one that the file names."""
        live = from_output(stored, ALERT.fields)
        for key, has in (("webhook-url", stored.has_webhook_url), ("slack-webhook", stored.has_slack_webhook)):
            if has and key in entry:
                live[key] = entry[key]
        return live


def database_entry(
    client: Client, database: DatabaseDetail, project: ProjectDetail | None, *, has_backups: bool = False
) -> Entry:
    """Return a database of the platform in the form of the file; `backups` takes another request."""
    entry = from_output(database, DATABASE.fields)
    entry["type"] = database.type.lower()
    entry["username"] = database.connection_details.username
    entry["db-name"] = database.connection_details.database
    entry["linked"] = project is not None and database.project_id == project.id
    if has_backups:
        config = client.databases.list_backups(database.name or "").config
        table = DATABASE.fields["backups"].table
        entry["backups"] = from_output(config, table) if config is not None else {"enabled": False}
    return entry


_RANK = {kind: number for number, kind in enumerate(
    ("project", "database", "secret", "domain", "redirects", "headers", "schedule", "cronjob", "monitor", "alert")
)}  # fmt: skip


def _order(change: Change) -> tuple[bool, int]:
    """The project comes first, because databases and monitors are linked to it; deletions run backwards, last."""
    rank = _RANK[change.kind]
    is_deletion = change.action is Action.DELETE
    return is_deletion, -rank if is_deletion else rank


def host_of(domain: str) -> str:
    """Return a domain as the platform stores it: in lower case, and in ASCII."""
    lowered = domain.lower().rstrip(".")
    if lowered.isascii():
        return lowered
    import idna

    try:
        return idna.encode(lowered, uts46=True, std3_rules=True).decode()
    except idna.IDNAError:  # refused by the API with the reason
        return lowered


def rule_text(rule: Entry | None) -> str | None:
    if rule is None:
        return None
    if "destination" in rule:
        return f"{rule['destination']} ({rule['status']})"
    return str(rule["value"])


def flat(entry: Mapping[str, Any], resource: Resource) -> list[tuple[str, Any]]:
    """Return the values of an entry with dotted keys for tables: `env.LOG_LEVEL`."""
    pairs: list[tuple[str, Any]] = []
    for key, value in entry.items():
        field = resource.fields.get(key)
        if field is None or field.shape is Shape.HIDDEN:
            continue
        if field.shape in (Shape.PAIRS, Shape.TABLE):
            pairs += [(f"{key}.{name}", each) for name, each in value.items()]
        else:
            pairs.append((key, value))
    return pairs


def hidden(entry: Mapping[str, Any], resource: Resource) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in entry.items()
            if key in resource.fields and resource.fields[key].shape is Shape.HIDDEN]  # fmt: skip


def hidden_change(key: str, value: Any) -> FieldChange:
    """Return the change of an address that comes from the environment; the address itself stays out of it."""
    name = value["env"]
    problem = "" if os.environ.get(name) else f"{key} needs the variable {name} in the environment of this command"
    return FieldChange(key, None, f"${name}", problem=problem)


def differences(field: Field, before: Any, after: Any, kind: str) -> list[FieldChange]:
    """Return the differences of one key; variables that only the platform has need --prune."""
    if field.shape is Shape.HIDDEN:
        return [] if before == after else [hidden_change(field.key, after)]
    if field.shape in (Shape.PAIRS, Shape.TABLE):
        old = before or {}
        names = [name for name, value in after.items() if not is_same(old.get(name), value)]
        changes = [FieldChange(f"{field.key}.{name}", old.get(name), after[name]) for name in names]
        surplus = [name for name in old if name not in after] if field.shape is Shape.PAIRS else []
        return changes + [FieldChange(f"{field.key}.{name}", old[name], None, needs_prune=True) for name in surplus]
    if is_same(before, after):
        return []
    problem = f"{field.key} is {before!r} on the platform; {FIXED.format(kind=kind)}" if not field.is_updatable else ""
    return [FieldChange(field.key, before, after, problem=problem)]


def is_same(before: Any, after: Any) -> bool:
    """Compare two values; an absent one equals an empty or false one."""
    return before == after or (before is None and after in ("", False, {}, []))
