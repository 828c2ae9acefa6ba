"""`moorage deployments`: list, follow, repeat and roll back the deployments of a project."""

from __future__ import annotations

import itertools
import queue
import re
import threading
from itertools import islice
from typing import Annotated

import typer

from moorage.cli.help import GroupedCommands, group
from moorage.cli.output.tables import Column, JsonOption, show_json, show_list, show_one
from moorage.cli.output.terminal import json_text, log_text, note, plain, say, stop
from moorage.cli.output.words import ago, duration, state_style
from moorage.cli.resources.projects import following
from moorage.cli.session import completion, connect
from moorage.cli.session.names import ProjectArgument, argument
from moorage.client import Client, Event, NotFound, models

app = group("Deployments of a project: logs, redeploy, rollback, previews.")
previews = typer.Typer(cls=GroupedCommands, no_args_is_help=True, help="Previews of pull requests.")
app.add_typer(previews, name="previews")

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
QUIET_S = 1.0  # without an event, a log that is not followed has ended
SEARCHED = 500  # deployments in which a prefix is looked for

Target = Annotated[str, argument("project", "Name of the project, or the uuid of a deployment.")]
Which = Annotated[
    str | None,
    typer.Argument(
        metavar="DEPLOYMENT",
        help="Beginning of the uuid of a deployment; default: the latest.",
        autocompletion=completion.of_project("deployments?limit=20", "deploymentUuid"),
    ),
]


@app.command("list")
def list_deployments(
    name: ProjectArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Newest deployments to show.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the deployments of a project, newest first; a star marks the live one.

    Examples: `moorage deployments list shop`, `moorage deployments list shop --limit 100 --json`.
    """
    columns = [
        Column("", lambda row: "*" if row.enable else ""),
        Column("DEPLOYMENT", lambda row: row.deployment_uuid),
        Column("STATUS", lambda row: row.status, lambda row: state_style(row.status)),
        Column("KIND", lambda row: "preview" if row.preview else row.kind),
        Column("BRANCH", lambda row: row.branch),
        Column("COMMIT", lambda row: row.commit_id),
        Column("DURATION", lambda row: duration(row.duration_ms)),
        Column("BY", lambda row: row.actor.name),
        Column("CREATED", lambda row: ago(row.created_at)),
        Column("REASON", lambda row: row.reason),
    ]
    rows = islice(connect.client().deployments.iterate(name, limit=min(limit, 100)), limit)
    show_list(rows, columns, as_json=as_json, empty="There are no deployments; start one with `moorage deploy`.")


@app.command("show")
def show_deployment(name: Target, deployment: Which = None, as_json: JsonOption = False) -> None:
    """Show the status of a deployment, and the reason if it failed.

    Examples: `moorage deployments show shop`, `moorage deployments show shop 1f0c`.
    """
    client = connect.client()
    status = client.deployments.read_status(find_uuid(client, name, deployment))
    pairs = [
        ("deployment", status.deployment_uuid),
        ("project", status.project_name),
        ("status", status.status),
        ("reason", status.reason),
        ("queue position", status.queue_position),
        ("repository", status.repository_name),
        ("branch", status.branch),
        ("commit", status.commit_id),
        ("url", status.project_url),
        ("created", ago(status.created_at)),
        ("updated", ago(status.updated_at)),
    ]
    show_one(status, pairs, as_json=as_json)


def find_uuid(client: Client, target: str, deployment: str | None) -> str:
    """Return the uuid of a deployment from a project and the beginning of a uuid; exits if none matches."""
    if deployment is None and UUID.fullmatch(target):
        return target
    listed = islice(client.deployments.iterate(target, limit=20 if deployment is None else 100), SEARCHED)
    uuids = (
        each.deployment_uuid
        for each in listed
        if deployment is None or each.deployment_uuid.startswith(deployment) or str(each.id) == deployment
    )
    uuid = next(uuids, None)
    if uuid is None:
        which = f" {deployment}; `moorage deployments list {target}` shows them" if deployment else " yet"
        stop(plain(f"{target} has no deployment{which}"))
    return uuid


@app.command("logs")
def show_logs(
    name: Target,
    deployment: Which = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the deployment ends.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the log of a deployment.

    With `--follow` the command ends with the deployment, with exit code 1 if it failed. `--json` prints one JSON
    object per line.

    Examples: `moorage deployments logs shop -f`, `moorage deployments logs shop 1f0c`.
    """
    client = connect.client()
    uuid = find_uuid(client, name, deployment)
    status = client.deployments.read_status(uuid)
    if follow or status.terminal:
        for event in client.deployments.follow(uuid):
            _print_event(event, as_json=as_json)
        status = client.deployments.read_status(uuid)
    else:
        _print_until_quiet(client, uuid, as_json=as_json)
    if status.status == "failed":
        note(f"the deployment failed: {plain(status.reason or 'the log has the reason')}", "red")
        if follow:
            raise typer.Exit(1)


def _print_event(event: Event, *, as_json: bool) -> None:
    if event.name != "log":
        return
    if as_json:
        import msgspec

        typer.echo(json_text(msgspec.json.encode(event.data).decode()))
    else:
        say(log_text(str(event.data.get("message", ""))))


def _print_until_quiet(client: Client, uuid: str, *, as_json: bool) -> None:
    """Print the lines of a running deployment that exist already: the stream does not say where they end."""
    events: queue.Queue[Event] = queue.Queue()

    def collect() -> None:
        for event in client.deployments.follow(uuid):
            events.put(event)

    threading.Thread(target=collect, daemon=True).start()
    while True:
        try:
            _print_event(events.get(timeout=QUIET_S), as_json=as_json)
        except queue.Empty:
            note("the deployment goes on; `-f` follows it", "dim")
            return


@app.command("redeploy")
def redeploy(
    name: ProjectArgument,
    fresh: Annotated[bool, typer.Option("--no-cache", help="Build without caches.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Publish the live release again, without a build.")
    ] = False,
    commit: Annotated[str | None, typer.Option("--commit", help="Deploy this commit.")] = None,
    latest: Annotated[bool, typer.Option("--latest", help="Deploy the head of the tracked branch.")] = False,
    wait: following.WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Deploy a project again: the commit of the live release, or another one.

    Examples: `moorage deployments redeploy shop`, `moorage deployments redeploy shop --latest --no-cache`.
    """
    if restart and (fresh or commit or latest):
        stop("--restart builds nothing; leave out --no-cache, --commit and --latest", 2)
    deployments = connect.client().deployments
    if restart:
        started = deployments.deploy_project(name, operation="restart")
    elif commit is not None:
        operation = "rebuild" if fresh else "deploy"
        started = deployments.deploy_project(name, operation=operation, commit_sha=commit)  # type: ignore[arg-type]
    elif fresh or latest:
        started = deployments.deploy_project(name, operation="rebuild" if fresh else "deploy")
    else:
        started = deployments.redeploy_project(name)
    following.finish(started.deployment_uuid, started, wait=wait, as_json=as_json)


@app.command("rollback")
def roll_back(
    name: ProjectArgument,
    deployment: Annotated[
        str | None,
        typer.Argument(
            metavar="DEPLOYMENT",
            help="Beginning of the uuid; default: the release before the live one.",
            autocompletion=completion.of_project("deployments?limit=20", "deploymentUuid"),
        ),
    ] = None,
    wait: following.WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Publish an earlier release again, without a build.

    Examples: `moorage deployments rollback shop`, `moorage deployments rollback shop 1f0c`.
    """
    client = connect.client()
    uuid = find_uuid(client, name, deployment) if deployment else _before_the_live_one(client, name)
    started = client.deployments.roll_project_back(name, deployment_uuid=uuid)
    note(f"rolling {name} back to {uuid}", "dim")
    following.finish(started.deployment_uuid, started, wait=wait, as_json=as_json)


def _before_the_live_one(client: Client, name: str) -> str:
    """Return the newest succeeded deployment that is older than the live one."""
    listed = islice(client.deployments.iterate(name, limit=100), SEARCHED)
    older = itertools.dropwhile(lambda each: not each.enable, listed)
    next(older, None)  # the live one
    deployment = next((each for each in older if each.status == "succeeded" and not each.preview), None)
    if deployment is None:
        stop(f"{plain(name)} has no earlier release; `moorage deployments list {plain(name)}` shows its deployments")
    return deployment.deployment_uuid


@previews.command("list")
def list_previews(name: ProjectArgument, as_json: JsonOption = False) -> None:
    """List the previews of a project's pull requests.

    Example: `moorage deployments previews list shop`.
    """
    columns = [
        Column("NUMBER", lambda row: row.number),
        Column("STATUS", lambda row: row.status, lambda row: state_style(row.status)),
        Column("BRANCH", lambda row: row.branch),
        Column("COMMIT", lambda row: row.commit_id),
        Column("FORK", lambda row: row.fork),
        Column("URL", lambda row: row.url),
        Column("TITLE", lambda row: row.title),
        Column("UPDATED", lambda row: ago(row.updated_at)),
    ]
    rows = connect.client().deployments.list_previews(name)
    show_list(rows, columns, as_json=as_json, empty="There are no previews; they need `--previews` and a code host.")


@previews.command("approve")
def approve_preview(
    name: ProjectArgument,
    number: Annotated[int, typer.Argument(min=1, help="Number of the pull request.")],
    commit: Annotated[
        str | None, typer.Option("--commit", help="The reviewed commit. Default: the current one, which is printed.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Build the commit of a fork's pull request, without the project's secrets.

    Fails if the pull request gets another commit meanwhile.

    Examples: `moorage deployments previews approve shop 7`,
    `moorage deployments previews approve shop 7 --commit dc94d9bc77fc`.
    """
    client = connect.client()
    try:
        sha = commit or _current_commit(client, name, number)
        preview: models.PreviewOut = client.deployments.approve_preview(name, number, commit_sha=sha)
    except NotFound:
        note(f"`moorage deployments previews list {name}` shows the previews that exist")
        raise
    if as_json:
        show_json(preview)
    else:
        say(f"approved pull request {preview.number}: {preview.url}")


def _current_commit(client: Client, name: str, number: int) -> str:
    """Return the commit of a pull request, and print it; exits without a preview."""
    preview = next((each for each in client.deployments.list_previews(name) if each.number == number), None)
    if preview is None:
        stop(
            f"{plain(name)} has no preview of pull request {number}; "
            f"`moorage deployments previews list {plain(name)}` shows the previews that exist"
        )
    note(f"pull request {number} is at commit {preview.commit_sha}: {plain(preview.title)}", "dim")
    return preview.commit_sha
