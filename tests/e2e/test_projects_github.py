"""Projects of repositories at a code host: its events deploy them, and give their pull requests addresses."""

from __future__ import annotations

from typing import Any

import pytest
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import Codehost, Sites, new_name, page
from tests.products.repositories.support import Checkout

pytest_plugins = ["tests.e2e.projects_fixtures"]
pytestmark = pytest.mark.group("projects")

SECRET = "not-for-strangers"
# Publishes whatever it was given: what is on the page, a stranger has.
SHOWS = "mkdir dist && (cat index.html; env) > dist/index.html && env"


def push_event(repository: str, sha: str, branch: str = "main") -> dict[str, Any]:
    return {
        "ref": f"refs/heads/{branch}",
        "after": sha,
        "repository": {"full_name": repository, "id": 1, "private": False},
    }


def pull_event(action: str, repository: str, sha: str, *, head: str, number: int = 7) -> dict[str, Any]:
    pull = {"number": number, "title": "A change", "head": {"sha": sha, "ref": "change", "repo": {"full_name": head}}}
    return {"action": action, "pull_request": pull, "repository": {"full_name": repository, "id": 1, "private": False}}


def hear(sites: Sites, event: str, payload: Any, delivery: str) -> None:
    answer = sites.deliver(event, payload, delivery)
    assert (answer.status, answer.json) == (200, {"received": True})


def preview_of(sites: Sites, name: str) -> dict[str, Any]:
    """Return the only preview of a project, once there is one."""
    wait_until(lambda: sites.call("GET", f"/v1/projects/{name}/previews"))
    found: list[dict[str, Any]] = sites.call("GET", f"/v1/projects/{name}/previews")
    assert len(found) == 1
    return found[0]


def change(codehost: Codehost, work: Checkout, repository: str, text: str) -> str:
    """Put a commit on the branch of a pull request, at the code host."""
    work.git("checkout", "--quiet", "-B", "change")
    sha = work.commit(text, index_html=page(text))
    codehost.receive(work, repository, "change")
    return sha


def test_a_push_event_deploys_its_commit_and_one_that_comes_again_does_not(sites: Sites, codehost: Codehost) -> None:
    name = new_name("hooked")
    repository = f"octo/{name}"
    work = codehost.repository(repository, index_html=page("one"))
    sites.ended(sites.create_project(name, repository, autoDeploy=True))
    before = sites.text(name)
    second = work.commit("the second", index_html=page("two"))
    codehost.receive(work, repository)

    hear(sites, "push", push_event(repository, second), f"{name}-2")
    wait_until(lambda: sites.text(name) == page("two"))
    third = work.commit("the third", index_html=page("three"))
    codehost.receive(work, repository)
    hear(sites, "push", push_event(repository, second), f"{name}-2")
    hear(sites, "push", push_event(repository, third, "elsewhere"), f"{name}-elsewhere")
    hear(sites, "push", push_event(repository, third), f"{name}-3")
    wait_until(lambda: sites.text(name) == page("three"))

    assert before == page("one")
    found = sites.deployments(name)
    assert [each["commitSha"] for each in found][:2] == [third, second]
    assert len(found) == 3
    assert found[0]["actor"] == {"userId": None, "name": None, "username": None}


def test_an_event_that_is_not_signed_changes_nothing(sites: Sites, codehost: Codehost) -> None:
    name = new_name("forged")
    work = codehost.repository(f"octo/{name}", index_html=page("one"))
    sites.ended(sites.create_project(name, f"octo/{name}", autoDeploy=True))
    event = push_event(f"octo/{name}", work.git("rev-parse", "HEAD"))

    answer = sites.send("POST", "/api/v1/webhook/github-events", str(event), {"X-GitHub-Event": "push"})

    assert (answer.status, answer.json) == (401, {"error": "invalid signature"})
    assert len(sites.deployments(name)) == 1


def test_a_pull_request_has_an_address_that_follows_it_and_goes_with_it(sites: Sites, codehost: Codehost) -> None:
    name = new_name("previewed")
    repository = f"octo/{name}"
    work = codehost.repository(repository, index_html=page("main"))
    sites.ended(sites.create_project(name, repository, prPreview=True))
    preview = f"{name}-pr-7"

    first = change(codehost, work, repository, "proposed")
    hear(sites, "pull_request", pull_event("opened", repository, first, head=repository), f"{name}-opened")
    wait_until(lambda: sites.text(preview) == page("proposed"))
    shown = preview_of(sites, name)
    second = change(codehost, work, repository, "improved")
    hear(sites, "pull_request", pull_event("synchronize", repository, second, head=repository), f"{name}-updated")
    wait_until(lambda: sites.text(preview) == page("improved"))
    main = sites.text(name)
    hear(sites, "pull_request", pull_event("closed", repository, second, head=repository), f"{name}-closed")
    wait_until(lambda: sites.visit(preview).status == 404)

    assert shown["url"] == f"http://{preview}.localhost:{sites.running.ports['gateway']}"
    assert (shown["status"], shown["commitId"], shown["fork"]) == ("active", first[:12], False)
    assert (main, sites.text(name)) == (page("main"), page("main"))
    assert preview_of(sites, name)["status"] == "closed"


def test_a_fork_waits_for_approval_and_is_built_without_secrets(sites: Sites, codehost: Codehost) -> None:
    name = new_name("forked")
    repository, fork = f"octo/{name}", f"stranger/{name}"
    codehost.repository(repository, index_html=page("main"))
    theirs = codehost.repository(fork, index_html=page("main"))
    fields: dict[str, Any] = {
        "env": [{"name": "OPEN", "value": "to-all"}],
        "secrets": [{"name": "API_KEY", "value": SECRET}],
    }
    sites.ended(sites.create_project(name, repository, prPreview=True, buildCmd=SHOWS, **fields))
    preview = f"{name}-pr-7"
    sha = change(codehost, theirs, fork, "strange")

    hear(sites, "pull_request", pull_event("opened", repository, sha, head=fork), f"{name}-opened")
    wait_until(lambda: preview_of(sites, name)["status"] == "waiting")
    waiting = (sites.visit(preview).status, len(sites.deployments(name)))
    sites.call("POST", f"/v1/projects/{name}/previews/7/approve")
    wait_until(lambda: page("strange") in sites.text(preview))

    sites.ended(sites.deployments(name)[0]["deploymentUuid"])
    newest = sites.deployments(name)[0]
    said = sites.log(newest["deploymentUuid"])
    assert SECRET in sites.text(name)
    assert waiting == (404, 1)
    assert (newest["status"], newest["commitSha"], newest["preview"]) == ("succeeded", sha, True)
    for text in (sites.text(preview), "\n".join(said)):
        assert "OPEN=to-all" in text
        assert "API_KEY" not in text
        assert SECRET not in text


@pytest.mark.deep
def test_what_a_fork_pushes_after_its_approval_waits_for_the_next(sites: Sites, codehost: Codehost) -> None:
    name = new_name("sly")
    repository, fork = f"octo/{name}", f"stranger/{name}"
    codehost.repository(repository, index_html=page("main"))
    theirs = codehost.repository(fork, index_html=page("main"))
    sites.ended(sites.create_project(name, repository, prPreview=True))
    harmless = change(codehost, theirs, fork, "harmless")
    hear(sites, "pull_request", pull_event("opened", repository, harmless, head=fork), f"{name}-opened")
    wait_until(lambda: preview_of(sites, name)["status"] == "waiting")
    sites.call("POST", f"/v1/projects/{name}/previews/7/approve")
    wait_until(lambda: sites.text(f"{name}-pr-7") == page("harmless"))

    sly = change(codehost, theirs, fork, "sly")
    hear(sites, "pull_request", pull_event("synchronize", repository, sly, head=fork), f"{name}-updated")
    wait_until(lambda: preview_of(sites, name)["commitId"] == sly[:12])

    assert preview_of(sites, name)["status"] == "waiting"
    assert sites.deployments(name)[0]["commitSha"] == harmless


@pytest.mark.deep
def test_a_pull_request_that_is_closed_while_it_is_built_is_never_live(sites: Sites, codehost: Codehost) -> None:
    name = new_name("hasty")
    repository = f"octo/{name}"
    work = codehost.repository(repository, index_html=page("main"))
    build = "echo begun; sleep 1; mkdir dist; cp index.html dist/"
    sites.ended(sites.create_project(name, repository, prPreview=True, buildCmd=build))
    sha = change(codehost, work, repository, "hasty")
    hear(sites, "pull_request", pull_event("opened", repository, sha, head=repository), f"{name}-opened")
    wait_until(lambda: sites.deployments(name)[0]["preview"])
    uuid = sites.deployments(name)[0]["deploymentUuid"]
    next(event for event in sites.follow(uuid) if event.data.get("message") == "begun")
    crashes = sites.crashes()

    hear(sites, "pull_request", pull_event("closed", repository, sha, head=repository), f"{name}-closed")
    ended = sites.ended(uuid)
    sites.ended(sites.deploy(name))

    assert (ended["status"], ended["reason"]) == ("failed", "The pull request was closed")
    assert sites.visit(f"{name}-pr-7").status == 404
    assert sites.crashes() == crashes
