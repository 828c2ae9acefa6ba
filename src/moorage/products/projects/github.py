"""GitHub events: a push starts a deployment, a pull request updates its preview.

The receiver has verified the signature and dropped repeated deliveries. Text fields of a payload are still untrusted
input and are validated here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from moorage.accounts.webhooks.service import GithubEvent, GithubEvents
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.products.projects import previews, tables
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.service import DeploymentRequest
from moorage.products.projects.previews import PullRequest
from moorage.products.projects.tables import Project
from moorage.products.repositories import service as repositories
from moorage.products.repositories.github import bindings
from moorage.products.repositories.names import is_branch, is_full_commit, key_of, parse_name

# Gitea and Forgejo send GitHub's headers and payloads, with `synchronized` for new commits.
UPDATES = frozenset(("opened", "reopened", "synchronize", "synchronized", "ready_for_review"))
TITLE_CHARS = 200
MAX_PULL_NUMBER = 2**31 - 1


class Pushed(NamedTuple):
    repository: str
    branch: str
    sha: str


def listen(events: GithubEvents) -> None:
    events.listen("push", on_push)
    events.listen("pull_request", on_pull_request)


@across_organizations("projects are found by their repository")
def on_push(tx: Tx, event: GithubEvent) -> None:
    """Deploy the commit to projects that track the branch with `autoDeploy`."""
    pushed = read_push(event)
    if pushed is None:
        return
    for project in _projects(tx, event, pushed.repository):
        if project.auto_deploy and project.enabled and project.branch == pushed.branch:
            request = DeploymentRequest(commit_sha=pushed.sha, branch=pushed.branch)
            deployments.start(tx, project.org_id, project, request)


def read_push(event: GithubEvent) -> Pushed | None:
    """Return the pushed commit; None for tags, deleted branches and invalid payloads."""
    name = _text(event.payload, "repository", "full_name", check=_is_name)
    ref, sha = _text(event.payload, "ref"), _text(event.payload, "after", check=is_full_commit)
    if name is None or ref is None or sha is None or not ref.startswith("refs/heads/") or event.payload.get("deleted"):
        return None
    return Pushed(name, ref.removeprefix("refs/heads/"), sha)


def concerns(tx: Tx, org_id: int, event: GithubEvent, repository: str) -> bool:
    """Return whether an organization may receive an event.

    A repository of the same name in the organization's own git server takes precedence over the code host's. Commits,
    branches and titles of a private repository go only to organizations that proved ownership of its account.
    """
    parsed = parse_name(repository)
    is_of_code_host = parsed is not None and repositories.find(tx, org_id, parsed) is None
    return is_of_code_host and bindings.may_hear(tx, org_id, event)


@across_organizations("projects are found by their repository")
def on_pull_request(tx: Tx, event: GithubEvent) -> None:
    """Update or close the previews of a repository's pull requests."""
    name = _text(event.payload, "repository", "full_name", check=_is_name)
    pull = _pull_request(event.payload, name)
    if name is None or pull is None:
        return
    for project in _projects(tx, event, name):
        if event.action == "closed":
            previews.close(tx, project.org_id, project, pull.number)
        elif event.action in UPDATES and project.pr_preview:
            previews.update(tx, project.org_id, project, pull)


@across_organizations("projects are found by their repository")
def _projects(tx: Tx, event: GithubEvent, name: str) -> list[Project]:
    """Return the projects of a repository that may receive the event."""
    projects = tx.all(tables.OF_REPOSITORY, repository=key_of(name))
    return [each for each in projects if concerns(tx, each.org_id, event, name)]


def _pull_request(payload: dict[str, Any], base: str | None) -> PullRequest | None:
    number = _at(payload, "pull_request", "number")
    sha = _text(payload, "pull_request", "head", "sha", check=is_full_commit)
    branch = _text(payload, "pull_request", "head", "ref", check=is_branch)
    # `repo` is null after the fork was deleted.
    head = _text(payload, "pull_request", "head", "repo", "full_name", check=_is_name) or ""
    if type(number) is not int or not 0 < number <= MAX_PULL_NUMBER or sha is None or branch is None:
        return None
    title = re.sub(r"[\x00-\x1f\x7f\ud800-\udfff]", " ", _text(payload, "pull_request", "title") or "")[:TITLE_CHARS]
    return PullRequest(number, title, head or base or "", branch, sha, is_fork=head.lower() != (base or "").lower())


def _at(payload: dict[str, Any], *path: str) -> Any:
    value: Any = payload
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _text(payload: dict[str, Any], *path: str, check: Callable[[str], bool] | None = None) -> str | None:
    value = _at(payload, *path)
    return value if isinstance(value, str) and (check is None or check(value)) else None


def _is_name(text: str) -> bool:
    return parse_name(text) is not None
