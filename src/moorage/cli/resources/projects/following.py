"""Deployments that a command started: their log while they run, and their end."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from moorage.cli.output.tables import show_json
from moorage.cli.output.terminal import log_text, note, plain, say
from moorage.cli.session import connect
from moorage.client import models

WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Show the log until the deployment has ended.")]


def finish(uuid: str, started: Any, *, wait: bool, as_json: bool) -> None:
    """Follow a deployment to its end; exits with code 1 if it fails. With --json the log goes to standard error."""
    if not wait:
        if as_json:
            show_json(started)
        else:
            say(f"deployment {uuid} is queued")
            note(f"follow it with `moorage deployments logs {uuid} -f`", "dim")
        return
    status = follow(uuid)
    if as_json:
        show_json(status)
    end(status)


def finish_update(project: models.ProjectDetail, *, wait: bool, as_json: bool) -> None:
    """Report changed settings, and follow the deployment that the change started."""
    uuid = project.triggered_deployment_uuid
    if as_json:
        if wait and uuid is not None:
            status = follow(uuid)
            show_json(connect.client().projects.read(project.name))
            end(status)
            return
        show_json(project)
        return
    say(f"changed {project.name}")
    if uuid is not None:
        finish(uuid, None, wait=wait, as_json=False)
    elif project.slug != "static" or project.latest_deployment is not None:
        note("settings of a build take effect with the next deployment", "dim")


def follow(uuid: str) -> models.DeploymentStatusInfo:
    """Print the log of a deployment on standard error until it ends, and return its status."""
    client = connect.client()
    began = time.monotonic()
    try:
        for event in client.deployments.follow(uuid):
            if event.name == "log":
                note(log_text(str(event.data.get("message", ""))))
    except KeyboardInterrupt:
        note(f"\nthe deployment goes on; follow it with `moorage deployments logs {uuid} -f`")
        raise
    status = client.deployments.read_status(uuid)
    note(f"{status.status} after {time.monotonic() - began:.1f} s", "dim")
    return status


def end(status: models.DeploymentStatusInfo) -> None:
    """Print the address of a live deployment; exit with the reason of a failed one."""
    if status.status == "failed":
        note(f"moorage: the deployment failed: {plain(status.reason or 'the log has the reason')}", "red")
        raise typer.Exit(1)
    note(f"{plain(status.project_name)} is live at {plain(status.project_url)}", "green")
