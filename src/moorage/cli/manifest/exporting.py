"""Settings of a project that exists, in the form of the file: `moorage init --from NAME`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moorage.cli.manifest.changes import is_secret_name
from moorage.cli.manifest.fields import from_output
from moorage.cli.manifest.planning import database_entry
from moorage.cli.manifest.reading import Entry
from moorage.cli.manifest.resources import ALERT, CRONJOB, HEADER, MONITOR, PROJECT, REDIRECT
from moorage.cli.manifest.writing import Draft

if TYPE_CHECKING:
    from moorage.client import Client
    from moorage.client.models import ProjectDetail


def export(client: Client, name: str) -> tuple[Draft, list[str]]:
    """Return the settings of a project with the resources that belong to it, and notes about values left out."""
    project = client.projects.read(name)
    notes: list[str] = []
    draft = Draft(_without_defaults(from_output(project, PROJECT.fields)))
    _without_secrets(draft.project, "env", notes, "the variable")
    if secrets := [each.name for each in client.projects.list_secrets(name)]:
        draft.project["secrets"] = secrets
    for domain in client.domains.list(name):
        draft.add("domains", {"domain": domain.domain})
    for redirect in client.rules.list_redirects(name):
        draft.add("redirects", from_output(redirect, REDIRECT.fields))
    for header in client.rules.list_header(name):
        draft.add("headers", from_output(header, HEADER.fields))
    _add_databases(client, project, draft)
    _add_cronjobs(client, project, draft, notes)
    _add_monitors(client, project, draft, notes)
    return draft, notes


def _add_databases(client: Client, project: ProjectDetail, draft: Draft) -> None:
    for item in client.databases.iterate():
        database = client.databases.read(item.name or "")
        if database.project_id == project.id:
            entry = database_entry(client, database, project, has_backups=database.backup == "enabled")
            del entry["linked"]
            draft.add("databases", entry)


def _add_cronjobs(client: Client, project: ProjectDetail, draft: Draft, notes: list[str]) -> None:
    if project.repository_name is None:
        return
    for item in client.cronjobs.iterate():
        cronjob = client.cronjobs.read(item.name or "")
        if cronjob.repository_name == project.repository_name:
            entry = _without_defaults(from_output(cronjob, CRONJOB.fields))
            _without_secrets(entry, "env", notes, f"of cronjob {cronjob.name} the variable")
            draft.add("cronjobs", entry)


def _add_monitors(client: Client, project: ProjectDetail, draft: Draft, notes: list[str]) -> None:
    for monitor in client.monitors.list():
        if monitor.project_id != project.id:
            continue
        entry = _without_defaults(from_output(monitor, MONITOR.fields))
        base = project.project_url.rstrip("/")
        if entry["url"].startswith(f"{base}/"):
            entry["url"] = entry["url"].removeprefix(base)
        _without_secrets(entry, "headers", notes, f"of monitor {monitor.name} the header")
        if alerts := [_alert(each) for each in client.monitors.list_alerts(monitor.id)]:
            entry[ALERT.section] = alerts
        draft.add("monitors", entry)


def _alert(stored: Any) -> Entry:
    entry = from_output(stored, ALERT.fields)
    if stored.has_slack_webhook:
        entry["slack-webhook"] = {"env": "SLACK_WEBHOOK"}
    if stored.has_webhook_url:
        entry["webhook-url"] = {"env": "WEBHOOK_URL"}
    return entry


def _without_defaults(entry: Entry) -> Entry:
    """Return an entry without empty and false values, which are the same as missing ones."""
    return {key: value for key, value in entry.items() if value is not False and value not in ("", [], {})}


def _without_secrets(entry: Entry, key: str, notes: list[str], words: str) -> None:
    for name in [each for each in entry.get(key, {}) if is_secret_name(each)]:
        del entry[key][name]
        notes.append(f"{words} {name} looks like a secret and is not written; store it as a secret")
    if key in entry and not entry[key]:
        del entry[key]
