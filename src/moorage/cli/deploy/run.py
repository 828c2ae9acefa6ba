"""One deployment of a folder, from its files to a live address. Used by `moorage deploy` and by other front ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moorage.cli.deploy import archive, following, target
from moorage.cli.deploy.following import Ended
from moorage.cli.deploy.git import find_git
from moorage.cli.deploy.plan import FolderPlan, NotDeployable
from moorage.cli.deploy.snapshot import Snapshot
from moorage.cli.deploy.target import Settings, Target
from moorage.cli.output.progress import Spinner
from moorage.client import Client

NO_GIT = "git is missing on this machine; install it, or deploy a folder of static files, which needs none"


@dataclass(slots=True)
class Deployment:
    """A started deployment, and the seconds that each step took."""

    name: str
    uuid: str
    seconds: dict[str, float] = field(default_factory=dict)
    ended: Ended | None = None

    def as_json(self) -> dict[str, Any]:
        ended = self.ended
        return {
            "name": self.name,
            "deploymentUuid": self.uuid,
            "status": ended.status if ended else "started",
            "url": ended.url if ended else None,
            "reason": ended.reason if ended and not ended.is_good else None,
            "seconds": {step: round(value, 2) for step, value in self.seconds.items()},
        }


Apply = Callable[[], bool]  # applies moorage.toml to the existing project; reports whether its app is affected


def start(
    client: Client, plan: FolderPlan, to: Target, settings: Settings, token: str, apply: Apply | None = None
) -> Deployment:
    """Send the folder and start its deployment. `apply` is called as soon as the project exists."""
    if to.is_upload or (plan.way == "zip" and to.project is None):
        if plan.way != "zip":
            raise NotDeployable(
                f"the project {to.name} publishes uploaded files, and this folder is built first; deploy it as another "
                "project with --name"
            )
        return _upload(client, plan, to, apply)
    return _push(client, plan, to, settings, token, apply)


def finish(client: Client, deployment: Deployment, *, shows_log: bool = True) -> Ended:
    """Follow a deployment to its end."""
    began = time.monotonic()
    deployment.ended = following.follow(client, deployment.uuid, deployment.name, shows_log=shows_log)
    deployment.seconds["deploy"] = time.monotonic() - began
    return deployment.ended


def _upload(client: Client, plan: FolderPlan, to: Target, apply: Apply | None) -> Deployment:
    clock = _Clock()
    with Spinner("packing") as spinner, archive.packed(plan.folder, spinner.print) as (path, count):
        clock.step("pack")
        spinner.update(f"sending {count} files")
        result = client.projects.upload_site(name=to.name, file=path)
        clock.step("send")
    if apply is not None:
        apply()
    return Deployment(to.name, result.upload_id, clock.seconds)


def _push(
    client: Client, plan: FolderPlan, to: Target, settings: Settings, token: str, apply: Apply | None
) -> Deployment:
    if find_git() is None:
        raise NotDeployable(NO_GIT)
    clock = _Clock()
    url = f"{client.transport.url}/git/{to.repository}.git"
    branch = (to.project.branch if to.project is not None else None) or settings.branch
    snapshot = Snapshot(plan.folder)
    with Spinner("packing") as spinner:
        snapshot.prepare()
        commit = snapshot.commit(url, branch, token)
        if commit.parent is None and to.project is not None and to.project.success_deployments:
            raise NotDeployable(
                f"the project {to.name} is deployed from {to.repository}, which is not a repository of this platform; "
                "push there, or deploy this folder as another project with --name"
            )
        clock.step("pack")
        if commit.is_new:
            spinner.update("sending")
            snapshot.push(commit, url, branch, token, on_progress=_progress(spinner))
        clock.step("send")
    if to.project is None:
        uuid = target.create(client, to, settings)
        if apply is not None and apply():  # The first deployment did not have its database or its health check.
            uuid = target.deploy(client, to, commit.sha)
    else:
        if apply is not None:
            apply()
        target.update(client, to, settings)
        uuid = target.deploy(client, to, commit.sha)
    return Deployment(to.name, uuid, clock.seconds)


def _progress(spinner: Spinner) -> Callable[[str], None]:
    def show(line: str) -> None:
        if "%" in line:  # "Writing objects:  45% (9/20), 1.20 MiB | 2.00 MiB/s"
            spinner.hint(f"sending: {line.partition(',')[0].lower()}")

    return show


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def step(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name] = now - self._last
        self._last = now
