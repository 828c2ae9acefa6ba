"""`moorage status`: everything of an organization, or of one project, at a glance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final, NamedTuple

from moorage.cli.help import single
from moorage.cli.output.charts import bars, sparkline
from moorage.cli.output.tables import GAP, Column, JsonOption, show_json, show_list, show_table
from moorage.cli.output.terminal import is_terminal, paint, plain, say
from moorage.cli.output.words import ago, duration, state_style
from moorage.cli.overview.problems import Problem, problems_in, state_of_monitor, state_of_project, state_of_schedule
from moorage.cli.session import connect
from moorage.cli.session.names import argument
from moorage.client import Client, models

app = single()

RECENT: Final = 5
LISTED: Final = 100  # of a kind; `moorage projects list` shows all


class Row(NamedTuple):
    """A resource in the overview."""

    kind: str
    name: str
    state: str
    detail: str


@app.command("status")
def _status(
    name: Annotated[str | None, argument("project", "Name of a project; default: the whole organization.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show everything of the organization, or one project, at a glance: problems first.

    Examples: `moorage status`, `moorage status shop`, `moorage status --json`.
    """
    client = connect.client()
    if name is None:
        _show_organization(fetch(_organization_parts(client)), as_json=as_json)
    else:
        _show_project(_fetch_project(client, name), as_json=as_json)


def fetch(parts: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Call all functions at once, each on a connection of its own, and return their results by name."""
    with ThreadPoolExecutor(max_workers=len(parts)) as pool:
        pending = {name: pool.submit(read) for name, read in parts.items()}
        return {name: each.result() for name, each in pending.items()}


def _organization_parts(client: Client) -> dict[str, Callable[[], Any]]:
    return {
        "me": client.identity.whoami,
        "usage": client.organizations.read_usage,
        "projects": lambda: client.projects.list(limit=LISTED).items,
        "functions": lambda: client.functions.list(page_size=LISTED).items,
        "schedules": client.schedules.list,
        "databases": lambda: client.databases.list(page_size=LISTED).items,
        "cronjobs": lambda: client.cronjobs.list(page_size=LISTED).items,
        "monitors": client.monitors.list,
    }


def _show_organization(results: dict[str, Any], *, as_json: bool) -> None:
    problems = problems_in(results)
    rows = list(_rows(results))
    if as_json:
        show_json({**results, "problems": problems})
    elif not is_terminal():
        for problem in problems:
            say(f"problem\t{plain(problem.name)}\t{plain(problem.text)}\t{plain(problem.hint)}")
        for row in rows:
            say("\t".join(map(plain, row)))
    else:
        me, usage = results["me"], results["usage"]
        say(f"{paint(plain(me.org_name), 'bold')} ({me.org_id}), plan {plain(usage.plan)}, you are {plain(me.role)}")
        _show_problems(problems)
        _show_rows(rows)
        _show_recent(results["projects"])
        _show_usage(usage)


def _rows(results: dict[str, Any]) -> Iterable[Row]:
    for project in results["projects"]:
        yield Row("project", project.name, state_of_project(project), project.project_url)
    for function in results["functions"]:
        yield Row("function", function.name, "active", f"{function.runtime}, version {function.current_version}")
    for schedule in results["schedules"]:
        yield Row("schedule", schedule.name, state_of_schedule(schedule), f"next {ago(schedule.next_run_at)}".strip())
    for database in results["databases"]:
        yield Row("database", database.name or "", database.status or "", f"{database.type} {database.version}")
    for cronjob in results["cronjobs"]:
        stats = cronjob.run_stats
        text = f"{cronjob.cron_schedule}, {stats.total_runs} runs, {stats.failed_runs} failed"
        yield Row("cronjob", cronjob.name or "", cronjob.status or "", text)
    for monitor in results["monitors"]:
        beat = monitor.last_heartbeat
        uptime = f"{monitor.uptime_percent:.2f} % up" if monitor.uptime_percent is not None else ""
        speed = f"{beat.response_time} ms" if beat is not None and beat.response_time is not None else ""
        yield Row("monitor", monitor.name or "", state_of_monitor(monitor), ", ".join(filter(None, (uptime, speed))))


def _show_problems(problems: list[Problem]) -> None:
    if not problems:
        say(paint("no problems", "green"))
        return
    say()
    say(f"Problems ({len(problems)})", "bold")
    for problem in problems:
        hint = paint(f"  `{plain(problem.hint)}`", "dim")
        say(f"  {paint('✗', 'red')} {problem.kind} {paint(plain(problem.name), 'bold')}: {plain(problem.text)}{hint}")


def _show_rows(rows: list[Row]) -> None:
    if not rows:
        say()
        say("There is nothing yet; begin with `moorage deploy`.")
        return
    columns = [
        Column("KIND", lambda row: row.kind),
        Column("NAME", lambda row: row.name),
        Column("STATE", lambda row: row.state, lambda row: state_style(row.state)),
        Column("", lambda row: row.detail),
    ]
    say()
    show_table(rows, columns)


def _show_recent(projects: list[models.ProjectListItem]) -> None:
    deployed = [(each.latest_deployment, each.name) for each in projects if each.latest_deployment is not None]
    recent = sorted(deployed, key=lambda pair: pair[0].created_at, reverse=True)[:RECENT]
    if not recent:
        return
    say()
    say("Recent deployments", "bold")
    width = max(len(name) for _, name in recent)
    for deployment, name in recent:
        status = paint(plain(deployment.status).ljust(9), *state_style(deployment.status))
        say(f"  {plain(name).ljust(width)}{GAP}{status}{GAP}{paint(ago(deployment.created_at), 'dim')}")


def _show_usage(usage: models.Usage) -> None:
    limited = {name: used for name, used in usage.usage.items() if used.limit}
    if not limited:
        return
    say()
    say("Usage", "bold")
    percentages = [100 * used.used / (used.limit or 1) for used in limited.values()]
    labels = [f"{name} {used.used} of {used.limit}" for name, used in limited.items()]
    for line in bars(percentages, labels, width=20, unit=" %", top=100):
        say(f"  {line}")


def _fetch_project(client: Client, name: str) -> dict[str, Any]:
    results = fetch(
        {
            "project": lambda: client.projects.read(name),
            "deployments": lambda: client.deployments.list(name, limit=RECENT).items,
            "domains": lambda: client.domains.list(name),
            "metrics": lambda: client.projects.read_app_metrics(name, range="1h"),
            "monitors": client.monitors.list,
        }
    )
    results["monitors"] = [each for each in results["monitors"] if each.project_id == results["project"].id]
    return results


def _show_project(results: dict[str, Any], *, as_json: bool) -> None:
    project: models.ProjectDetail = results["project"]
    if as_json:
        show_json(results)
        return
    state = state_of_project(project)
    metrics: models.ProjectMetrics = results["metrics"]
    pairs = [
        ("project", project.name),
        ("state", paint(plain(state), *state_style(state))),
        ("url", plain(project.project_url)),
        ("kind", " ".join(filter(None, (project.slug, project.language)))),
        ("repository", f"{project.repository_name} {project.branch}" if project.repository_name else None),
        ("tier", project.tier.key if project.tier else None),
        ("domains", ", ".join(f"{each.domain} ({each.status})" for each in results["domains"])),
        ("monitors", ", ".join(f"{each.name} ({state_of_monitor(each)})" for each in results["monitors"])),
        ("last hour", _traffic(metrics) if project.slug == "container" else None),
    ]
    for title, value in pairs:
        if value:
            say(f"{paint(title.ljust(12), 'dim')}{value}" if is_terminal() else f"{title}\t{value}")
    if is_terminal() and results["deployments"]:
        say()
    columns = [
        Column("", lambda row: "*" if row.enable else ""),
        Column("DEPLOYMENT", lambda row: row.deployment_uuid),
        Column("STATUS", lambda row: row.status, lambda row: state_style(row.status)),
        Column("DURATION", lambda row: duration(row.duration_ms)),
        Column("CREATED", lambda row: ago(row.created_at)),
        Column("REASON", lambda row: row.reason),
    ]
    show_list(results["deployments"], columns, as_json=False, empty="It was not deployed yet.")


def _traffic(metrics: models.ProjectMetrics) -> str:
    totals = metrics.totals
    line = sparkline([item.requests for item in metrics.items][-30:]) if is_terminal() else ""
    return f"{totals.requests} requests, {totals.failed} failed {line}".rstrip()
