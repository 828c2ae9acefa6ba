"""Which writes of the product take `?wait=`."""

from __future__ import annotations

import pytest

from moorage.app import App

pytestmark = pytest.mark.anyio

# Writes that start a job, or that do slow work before they answer.
SLOW = {
    "POST /v1/projects",
    "POST /v1/projects/static-upload",
    "PATCH /v1/projects/{name}",
    "POST /v1/projects/{name}/deploy",
    "POST /v1/projects/{name}/redeploy",
    "POST /v1/projects/{name}/rollback",
    "POST /v1/projects/{name}/previews/{number}/approve",
    "POST /v1/projects/{name}/domains",
    "POST /v1/domains/{domain_id}/verify",
    "POST /v1/functions",
    "PATCH /v1/functions/{name}",
    "POST /v1/functions/{name}/deploy",
    "POST /v1/functions/{name}/rollback",
    "POST /v1/databases",
    "DELETE /v1/databases/{name}",
    "POST /v1/databases/{name}/change-tier",
    "POST /v1/databases/{name}/upgrade",
    "POST /v1/databases/{name}/rotate-password",
    "POST /v1/databases/{name}/backups",
    "PATCH /v1/databases/{name}/backups",
    "POST /v1/databases/{name}/restore",
    "POST /v1/cronjobs",
    "PATCH /v1/cronjobs/{name}",
    "DELETE /v1/cronjobs/{name}",
    "POST /v1/cronjobs/{name}/trigger",
    "POST /v1/monitors",
    "POST /v1/monitors/{monitor_id}/resume",
    "POST /v1/alerts/{alert_id}/test",
}
RUNS = "the answer is the result of the run"
ROWS = "changes rows only"
GATEWAY = "answers after the gateway has the change"
CLEANUP = "gone for its users at once; files and processes are removed later"
# All other writes, with the reason why there is nothing to wait for.
QUICK = {
    "POST /v1/functions/{name}/invoke": RUNS,
    "POST /v1/scheduled-functions/{schedule_id}/run": RUNS,
    "POST /v1/projects/{name}/exec": RUNS,
    "POST /v1/databases/{name}/query": RUNS,
    "POST /v1/projects/{name}/redirects/test": "changes nothing",
    "POST /v1/projects/detect": "changes nothing",
    "POST /v1/operator/jobs/{job_id}/retry": ROWS,
    "PATCH /v1/operator/machines/{name}": ROWS,
    "DELETE /v1/operator/machines/{name}": ROWS,
    "DELETE /v1/operator/jobs/{job_id}": ROWS,
    "PATCH /v1/operator/organizations/{organization_id}": ROWS,
    "PATCH /v1/operator/users/{user_id}": ROWS,
    "PATCH /v1/projects/{name}/name": GATEWAY,
    "POST /v1/projects/{name}/toggle": GATEWAY,
    "PUT /v1/projects/{name}/headers": GATEWAY,
    "PUT /v1/projects/{name}/redirects": GATEWAY,
    "DELETE /v1/projects/{name}": CLEANUP,
    "DELETE /v1/functions/{name}": CLEANUP,
    "DELETE /v1/domains/{domain_id}": CLEANUP,
    "DELETE /v1/orgs/{org_id}": CLEANUP,
    "DELETE /v1/account": CLEANUP,
    "POST /v1/projects/{name}/secrets/reveal": ROWS,
    "POST /v1/functions/{name}/secrets/reveal": ROWS,
    "POST /v1/scheduled-functions": ROWS,
    "PATCH /v1/scheduled-functions/{schedule_id}": ROWS,
    "DELETE /v1/scheduled-functions/{schedule_id}": ROWS,
    "POST /v1/cronjobs/{name}/pause": ROWS,
    "POST /v1/cronjobs/{name}/resume": ROWS,
    "PATCH /v1/monitors/{monitor_id}": ROWS,
    "DELETE /v1/monitors/{monitor_id}": ROWS,
    "POST /v1/monitors/{monitor_id}/pause": ROWS,
    "POST /v1/monitors/{monitor_id}/alerts": ROWS,
    "PATCH /v1/alerts/{alert_id}": ROWS,
    "DELETE /v1/alerts/{alert_id}": ROWS,
    "POST /v1/registries": ROWS,
    "PATCH /v1/registries/{registry_id}": ROWS,
    "DELETE /v1/registries/{registry_id}": ROWS,
    "POST /v1/github/installations/begin": ROWS,
    "POST /v1/github/installations": ROWS,
    "DELETE /v1/github/installations/{installation_id}": ROWS,
    "POST /v1/auth/social": ROWS,
    "POST /v1/auth/oidc/begin": "asks an identity provider, and changes no row",
    "POST /v1/auth/oidc/token": "asks an identity provider, and changes no row",
    "POST /v1/auth/demo": ROWS,
    "POST /v1/auth/setup": ROWS,
    "POST /v1/api-tokens": ROWS,
    "DELETE /v1/api-tokens/{token_id}": ROWS,
    "PATCH /v1/account": ROWS,
    "POST /v1/notifications/read": ROWS,
    "POST /v1/notifications/{notification_id}/read": ROWS,
    "DELETE /v1/sessions/{session_id}": ROWS,
    "POST /v1/orgs": ROWS,
    "PATCH /v1/orgs/{org_id}": ROWS,
    "PATCH /v1/orgs/{org_id}/members/{user_id}": ROWS,
    "DELETE /v1/orgs/{org_id}/members/{user_id}": ROWS,
    "POST /v1/orgs/{org_id}/invitations": ROWS,
    "DELETE /v1/orgs/{org_id}/invitations/{invitation_id}": ROWS,
    "POST /v1/orgs/{org_id}/webhook-secret/reveal": ROWS,
    "POST /v1/invitations/{invitation_id}/accept": ROWS,
    "POST /v1/invitations/{invitation_id}/decline": ROWS,
    "POST /webhook": "a webhook receiver",
    "POST /api/v1/webhook/github-events": "a webhook receiver",
}


async def test_every_write_either_takes_a_wait_or_has_nothing_to_wait_for(app: App) -> None:
    writes = {f"{route.method} {route.path}": route.follow for route in app.routes if route.is_write}

    assert {name for name, follow in writes.items() if follow is not None} == SLOW
    assert {name for name, follow in writes.items() if follow is None} == set(QUICK)


async def test_the_openapi_document_has_the_wait_of_exactly_these_routes(app: App) -> None:
    described = {
        f"{method.upper()} {path}": parameter["schema"]
        for path, item in app.describe()["paths"].items()
        for method, operation in item.items()
        for parameter in operation["parameters"]
        if (parameter["in"], parameter["name"]) == ("query", "wait")
    }

    assert set(described) == SLOW
    assert all((each["minimum"], each["maximum"], each["default"]) == (0, 60, 0) for each in described.values())
