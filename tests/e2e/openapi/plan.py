"""One successful call of every operation, on an organization that gets one of everything by these very calls.

Creations come first and their answers lead to all other operations by links. An operation that ends something takes a
fresh resource that is made for it, so that neither the organization nor the credentials of the run are ended.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.e2e.openapi.calls import Answered, Operations, Upload, wait_until
from tests.e2e.openapi.world import APP, FORK, GITHUB_SECRET, JOB, STRIPE_SECRET, World
from tests.products.functions.support import PYTHON, zip_of
from tests.products.repositories.code_host import INSTALLATION, GithubUser, installation

OWNER, GUEST, NOBODY = "owner", "guest", "nobody"
PULL = 7
SITE = {"index.html": "<!doctype html><title>brochure</title>"}

_numbers = itertools.count(1)


@dataclass
class Run:
    """The calls of one run: who makes them, and what they were answered with."""

    operations: Operations
    world: World
    tokens: dict[str, str | None] = field(default_factory=dict)
    org: str = ""
    problems: dict[str, str] = field(default_factory=dict)  # calls that failed, by operation

    def headers(self, operation_id: str) -> dict[str, str]:
        """Return the credential that an operation is called with."""
        token = self.tokens.get(call_of(operation_id).who)
        return {"Authorization": f"Bearer {token}"} if token else {}

    def report(self, operation_ids: Iterable[str]) -> str:
        """Say of some operations how they were answered, and what went wrong; a line for each."""
        return "\n".join(
            f"{self.operations.by_id[each].label} ({each}): answered {dict(self.operations.statuses[each])}; "
            f"{self.problems.get(each, 'not called')}"
            for each in operation_ids
        )

    def answer(self, operation_id: str) -> Answered:
        return self.operations.answered[operation_id]

    def read(self, operation_id: str, source: str | None = None) -> Any:
        """Return the data that a read shows now, of the resource that a link leads to."""
        perform(self, operation_id, CALLS.get(operation_id, Call()), source)
        return self.answer(operation_id).data


Value = Callable[[Run], Any]


@dataclass(frozen=True)
class Call:
    """How an operation is called so that it succeeds. Values that depend on the run are made from it."""

    body: Value | None = None
    query: Value | None = None
    headers: Value | None = None
    path: Value | None = None  # where the link's resource is not the one that is meant
    who: str = OWNER
    fresh: str | None = None  # an operation that makes the resource, only for this call
    source: str | None = None  # the operation whose answer leads here
    first: Callable[[Run], object] | None = None  # before the call
    then: Callable[[Run], object] | None = None  # after it


def perform(run: Run, operation_id: str, call: Call, source: str | None = None) -> None:
    """Call an operation as the plan says."""
    if call.first:
        call.first(run)
    if call.fresh:
        perform(run, call.fresh, CALLS[call.fresh])
    path = {}
    if "{" in run.operations.by_id[operation_id].path:
        path = run.operations.follow(operation_id, source or call.source or call.fresh)
    made = {name: value(run) for name, value in _values(call).items()}
    path.update(made.pop("path", {}))
    headers = dict(made.pop("headers", {}))
    if call.who == OWNER and run.org:
        headers["X-Organization-Id"] = run.org
    run.operations.call(operation_id, token=run.tokens.get(call.who), path=path, headers=headers, **made)
    if call.then:
        call.then(run)


def _values(call: Call) -> dict[str, Value]:
    named = {"body": call.body, "query": call.query, "headers": call.headers, "path": call.path}
    return {name: value for name, value in named.items() if value is not None}


def always(value: Any) -> Value:
    return lambda run: value


def named(stem: str, **fields: Any) -> Value:
    """Make a body with a name that nothing else has."""
    return lambda run: {**fields, "name": f"{stem}-{next(_numbers)}"}


def uploaded(field_name: str, files: Mapping[str, str], **fields: str) -> Value:
    def make(run: Run) -> Upload:
        name = {"name": f"{fields['name']}-{next(_numbers)}"} if "name" in fields else {}
        return Upload(field_name, zip_of(files), {**fields, **name})

    return make


# States that a call waits for.


def deployed(source: str) -> Callable[[Run], None]:
    def wait(run: Run) -> None:
        wait_until(lambda: run.read("read_deployment_status", source)["terminal"])
        status = run.answer("read_deployment_status").data
        assert status["status"] == "succeeded", status

    return wait


def database_runs(run: Run) -> None:
    wait_until(lambda: run.read("read_database")["status"] == "running")


def cronjob_is_built(run: Run) -> None:
    wait_until(lambda: run.read("read_cronjob")["status"] != "pending")
    assert run.answer("read_cronjob").data["status"] == "running"


def run_has_ended(run: Run) -> None:
    wait_until(lambda: run.read("list_executions")["items"][0]["status"] in ("succeeded", "failed"))


def backup_is_made(run: Run) -> None:
    wait_until(lambda: run.read("list_backups")["items"][0]["status"] != "running")


def guest_is_told(run: Run) -> None:
    wait_until(lambda: run.read("list_notifications"))


def fork_waits(run: Run) -> None:
    wait_until(lambda: run.read("list_previews"))


# People.


def demo_is_in(run: Run) -> None:
    data = run.answer("demo_login").data
    run.tokens[OWNER], run.org = data["token"], data["organizationId"]


def guest_is_in(run: Run) -> None:
    run.tokens[GUEST] = run.answer("social_login").data["access_token"]


def another_guest(run: Run) -> None:
    """Log a person in who has nothing to do with the others, as the guest of the next call."""
    kept = run.tokens[GUEST]
    perform(run, "social_login", Call(body=signed("leaver"), who=NOBODY))
    run.tokens["leaver"] = run.answer("social_login").data["access_token"]
    run.tokens[GUEST] = kept


def another_session(run: Run) -> None:
    """Make a session that can be revoked: the newest one that is not the run's own."""
    perform(run, "demo_login", Call(who=NOBODY))
    run.read("list_sessions")


def other_session(run: Run) -> dict[str, Any]:
    sessions = run.answer("list_sessions").data
    return {"session_id": next(each["id"] for each in sessions if not each["current"])}


def signed(name: str) -> Value:
    return lambda run: {"auth_secret": run.world.issuer.sign(name), "terms_accepted": True}


def guest_member(run: Run) -> dict[str, Any]:
    members = run.read("list_members")
    return {"user_id": next(each["userId"] for each in members if each["email"] == "guest@example.com")}


def invite_again(run: Run) -> None:
    perform(run, "create_invitation", CALLS["create_invitation"])
    run.read("list_my_invitations")


def own_org(run: Run) -> dict[str, Any]:
    return {"org_id": run.org}


# The code host and Stripe.


def setup_state(run: Run) -> str:
    return str(parse_qs(urlsplit(run.answer("begin_installation").data["url"]).query)["state"][0])


def authorize(run: Run) -> dict[str, Any]:
    """Let the owner of a GitHub account authorize the app, and return what the redirect carries."""
    code = f"code{next(_numbers)}"
    run.world.github.codes[code] = GithubUser("ada", installations=[installation()], role="admin")
    return {"state": setup_state(run), "code": code, "installationId": INSTALLATION}


def pull_request(run: Run) -> bytes:
    head = {"sha": "a" * 40, "ref": "change", "repo": {"full_name": FORK}}
    pull = {"number": PULL, "title": "A change", "head": head}
    repository = {"full_name": APP, "id": 1, "private": False}
    return json.dumps({"action": "opened", "pull_request": pull, "repository": repository}).encode()


def github_headers(run: Run) -> dict[str, str]:
    signature = hmac.new(GITHUB_SECRET.encode(), pull_request(run), hashlib.sha256).hexdigest()
    return {
        "Content-Type": "application/json",
        "X-GitHub-Event": "pull_request",
        "X-GitHub-Delivery": "opened",
        "X-Hub-Signature-256": f"sha256={signature}",
    }


STRIPE_EVENT = json.dumps({"id": "evt_1", "type": "invoice.paid", "data": {"object": {}}}).encode()


def stripe_headers(run: Run) -> dict[str, str]:
    now = int(time.time())
    signature = hmac.new(STRIPE_SECRET.encode(), f"{now}.".encode() + STRIPE_EVENT, hashlib.sha256).hexdigest()
    return {"Content-Type": "application/json", "Stripe-Signature": f"t={now},v1={signature}"}


SECRET = [{"name": "API_KEY", "value": "of the run"}]
NEVER = "0 0 1 1 *"
ANCHOR = {"repositoryName": APP, "slug": "container", "language": "nodejs", "prPreview": True, "secrets": SECRET}
LEDGER = {"type": "postgresql", "version": "16.4.0", "instanceType": "micro", "backup": "enabled"}
NIGHTLY = {"repositoryName": JOB, "language": "nodejs", "command": "node run.js", "cronSchedule": NEVER}
ALERT = {"metric": "status", "condition": "eq", "threshold": 0}

# In this order; operations that are not named here follow in the order of the document, without a body.
CALLS: dict[str, Call] = {
    "demo_login": Call(who=NOBODY, then=demo_is_in),
    "social_login": Call(body=signed("guest"), who=NOBODY, then=guest_is_in),
    # What takes its time goes first.
    "create_database": Call(body=named("ledger", **LEDGER)),
    "create_project": Call(body=named("anchor", **ANCHOR)),
    "create_cronjob": Call(body=named("nightly", **NIGHTLY)),
    "create_function": Call(body=uploaded("code", PYTHON, name="greeter", runtime="python")),
    "upload_site": Call(body=uploaded("staticFiles", SITE, name="brochure")),
    "create_monitor": Call(body=lambda run: {"name": "health", "url": f"{run.world.platform.url}/health"}),
    "create_alert": Call(body=always(ALERT)),
    "create_registry": Call(
        body=lambda run: {"host": f"r{next(_numbers)}.example.com", "username": "ada", "secret": "sesame"}
    ),
    "create_token": Call(body=named("spare", role="viewer")),
    "create_org": Call(body=named("Fleet")),
    "read_org": Call(path=own_org),
    "rename_org": Call(body=always({"name": "Harbor"}), path=own_org),
    "reveal_webhook_secret": Call(path=own_org),
    "list_members": Call(path=own_org),
    # People: one declines, accepts, is given another role.
    "create_invitation": Call(body=always({"email": "guest@example.com"}), path=own_org),
    "list_my_invitations": Call(who=GUEST),
    "decline_invitation": Call(who=GUEST),
    "list_invitations": Call(path=own_org),
    "list_notifications": Call(who=GUEST),
    "read_notification": Call(who=GUEST, first=guest_is_told),
    "accept_invitation": Call(
        who=GUEST,
        first=invite_again,
    ),
    "change_member": Call(body=always({"role": "viewer"}), path=lambda run: {**own_org(run), **guest_member(run)}),
    "update_account": Call(body=always({"firstName": "Grace"})),
    "list_sessions": Call(),
    # Functions.
    "deploy_function": Call(body=uploaded("code", PYTHON)),
    "roll_function_back": Call(body=always({"version": 1})),
    "update_function": Call(body=always({"secrets": SECRET})),
    "reveal_function_secret": Call(body=always({"name": "API_KEY"})),
    "invoke_function": Call(body=always({"params": {}})),
    "create_scheduled_function": Call(
        body=lambda run: (
            {"name": f"yearly-{next(_numbers)}", "cronSchedule": NEVER}
            | {"function": run.answer("create_function").data["name"]}
        )
    ),
    "update_scheduled_function": Call(body=always({"enabled": False})),
    # Projects.
    "check_name": Call(query=always({"name": "free-name"})),
    "rename_project": Call(body=named("renamed"), fresh="upload_site"),
    "toggle_project": Call(body=always({"enable": False}), fresh="upload_site"),
    "reveal_secret": Call(body=always({"name": "API_KEY"}), source="create_project"),
    "update_project": Call(body=always({"autoDeploy": True}), source="create_project"),
    "set_header_rules": Call(body=always({"headers": [{"source": "/*", "name": "X-Run", "value": "yes"}]})),
    "set_redirects": Call(body=always({"redirects": [{"source": "/a", "destination": "/b", "status": 301}]})),
    "detect_project": Call(body=always({"repositoryName": APP, "branch": "main", "slug": "container"})),
    "test_rules": Call(body=always({"path": "/a"})),
    "read_next_runs": Call(query=always({"expression": "0 9 * * 1-5", "timezone": "Europe/Berlin"})),
    "add_domain": Call(body=lambda run: {"domain": f"www{next(_numbers)}.harbor.example"}),
    "deploy_project": Call(first=deployed("create_project"), source="create_project", then=deployed("deploy_project")),
    "redeploy_project": Call(source="create_project", then=deployed("redeploy_project")),
    "roll_project_back": Call(
        body=lambda run: {"deploymentUuid": run.answer("create_project").data["deploymentUuid"]},
        source="create_project",
        then=deployed("roll_project_back"),
    ),
    "run_command": Call(body=always({"command": "echo ran"}), source="create_project"),
    # The code host and Stripe.
    "begin_installation": Call(),
    "show_callback": Call(query=lambda run: {"state": setup_state(run), "code": "code0"}, who=NOBODY),
    "connect_installation": Call(body=authorize),
    "receive_github_event": Call(body=pull_request, headers=github_headers, who=NOBODY),
    "list_previews": Call(source="create_project"),
    "approve_preview": Call(first=fork_waits),
    "receive_stripe_event": Call(body=always(STRIPE_EVENT), headers=stripe_headers, who=NOBODY),
    # Cronjobs.
    "trigger_cronjob": Call(first=cronjob_is_built, then=run_has_ended),
    "update_cronjob": Call(body=always({"cronSchedule": "0 1 1 1 *"})),
    "update_registry": Call(body=always({"username": "grace"})),
    # Databases.
    "make_backup": Call(first=database_runs, then=backup_is_made),
    "update_backups": Call(body=always({"backupsToKeep": 3})),
    "query_database": Call(body=always({"sql": "CREATE TABLE boat (id int PRIMARY KEY)", "write": True})),
    "list_tables": Call(),
    "read_table": Call(source="list_tables"),
    "rotate_password": Call(then=database_runs),
    "change_tier": Call(body=always({"instanceType": "mini"}), then=database_runs),
    "upgrade_database": Call(body=always({"instanceType": "micro"}), then=database_runs),
    "restore_database": Call(
        body=lambda run: {"backupName": run.answer("make_backup").data["name"], "confirm": True}, then=database_runs
    ),
    # Monitors.
    "update_monitor": Call(body=always({"interval": 600})),
    "update_alert": Call(body=always({"severity": "error"})),
    # The platform: the demo user is its operator in development.
    "list_tenants": Call(),
    "update_tenant": Call(body=always({"plan": "pro"}), source="list_tenants"),
    "list_machines": Call(),
    "update_machine": Call(body=always({"draining": False}), source="list_machines"),
    "list_users": Call(),
    "update_user": Call(body=always({"approved": True}), source="list_users"),
}
# What ends something: each takes a resource that was made for it, or one that no other operation needs any more.
ENDINGS: dict[str, Call] = {
    "revoke_token": Call(fresh="create_token"),
    "revoke_session": Call(first=another_session, path=other_session, source="list_sessions"),
    "revoke_invitation": Call(
        first=lambda run: perform(
            run, "create_invitation", Call(body=always({"email": "later@example.com"}), path=own_org)
        ),
        source="create_invitation",
    ),
    "remove_member": Call(path=lambda run: {**own_org(run), **guest_member(run)}),
    "delete_org": Call(fresh="create_org"),
    "delete_account": Call(who="leaver", first=another_guest),
    "disconnect_installation": Call(source="connect_installation"),
    "delete_domain": Call(fresh="add_domain"),
    "delete_alert": Call(fresh="create_alert"),
    "delete_monitor": Call(fresh="create_monitor"),
    "delete_scheduled_function": Call(fresh="create_scheduled_function"),
    "delete_function": Call(fresh="create_function"),
    "delete_project": Call(fresh="upload_site"),
    "delete_cronjob": Call(fresh="create_cronjob"),
    "delete_registry": Call(fresh="create_registry"),
    "delete_database": Call(fresh="create_database"),
}
# Not part of the run on one platform; test_operations.py calls it on a platform that has no user yet.
ELSEWHERE = "set_up"


def order(operations: Operations) -> list[str]:
    """Return every operation in the order in which they are called."""
    others = [each for each in operations.by_id if each not in CALLS and each not in ENDINGS and each != ELSEWHERE]
    return [*CALLS, *others, *ENDINGS]


def call_of(operation_id: str) -> Call:
    return ENDINGS.get(operation_id) or CALLS.get(operation_id) or Call()
