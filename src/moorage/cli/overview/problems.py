"""States of resources in one word, and their problems."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from moorage.cli.output.words import ago
from moorage.client import models

CERTIFICATE_DAYS: Final = 14  # before the end of a monitored certificate
USAGE_PERCENT: Final = 90  # of a limit


class Problem(msgspec.Struct):
    """Something that needs attention, and the command that says more about it."""

    kind: str
    name: str
    text: str
    hint: str


def state_of_project(project: models.ProjectListItem | models.ProjectDetail) -> str:
    """Return one word for a project: paused, or the status of its latest deployment."""
    if not project.enabled:
        return "paused"
    return project.latest_deployment.status if project.latest_deployment else "none"


def state_of_monitor(monitor: models.MonitorOut) -> str:
    if monitor.status == "pause":
        return "paused"
    return monitor.last_heartbeat.status.lower() if monitor.last_heartbeat else "pending"


def state_of_schedule(schedule: models.ScheduledFunction) -> str:
    return "active" if schedule.enabled else "paused"


def problems_in(results: dict[str, Any]) -> list[Problem]:
    """Return the problems of an organization, the most urgent kind first."""
    return [
        *_of_monitors(results["monitors"]),
        *_of_projects(results["projects"]),
        *_of_databases(results["databases"]),
        *_of_cronjobs(results["cronjobs"]),
        *_of_schedules(results["schedules"]),
        *_of_usage(results["usage"]),
    ]


def _of_monitors(monitors: list[models.MonitorOut]) -> Iterable[Problem]:
    for each in monitors:
        name = each.name or ""
        if state_of_monitor(each) == "down" and each.last_heartbeat is not None:
            yield Problem("monitor", name, f"down: {each.last_heartbeat.message}", f"moorage monitors show {name}")
        if each.ssl is not None and each.ssl.days_until_expiry < CERTIFICATE_DAYS:
            text = f"its certificate ends in {each.ssl.days_until_expiry} days"
            yield Problem("monitor", name, text, f"moorage monitors show {name}")


def _of_projects(projects: list[models.ProjectListItem]) -> Iterable[Problem]:
    for each in projects:
        latest = each.latest_deployment
        if each.enabled and latest is not None and latest.status == "failed":
            text = f"the latest deployment failed {ago(latest.created_at)}"
            yield Problem("project", each.name, text, f"moorage deployments logs {each.name}")


def _of_databases(databases: list[models.DatabaseListItem]) -> Iterable[Problem]:
    for each in databases:
        if each.status in ("failed", "stopped"):
            yield Problem("database", each.name or "", each.status, f"moorage databases show {each.name}")


def _of_cronjobs(cronjobs: list[models.CronjobListItem]) -> Iterable[Problem]:
    for each in cronjobs:
        if each.status == "failed":
            yield Problem("cronjob", each.name or "", "its last build failed", f"moorage cronjobs show {each.name}")


def _of_schedules(schedules: list[models.ScheduledFunction]) -> Iterable[Problem]:
    for each in schedules:
        if each.enabled and each.last_error:
            text = f"its last run failed: {each.last_error}"
            yield Problem("schedule", each.name, text, f"moorage schedules show {each.name}")


def _of_usage(usage: models.Usage) -> Iterable[Problem]:
    for name, used in usage.usage.items():
        if used.limit and used.used * 100 >= used.limit * USAGE_PERCENT:
            yield Problem("limit", name, f"{used.used} of {used.limit} used", "moorage orgs show")
