"""Routes of header and redirect rules; a change waits until the gateway serves it.

Validation of 1,000 rules takes a while, so it runs in a thread and outside of any transaction.
"""

from __future__ import annotations

import asyncio

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.idempotency.once import Write
from moorage.core.http.route import MB, Router
from moorage.products.projects import service as projects
from moorage.products.projects.route_sync import SyncRoutes
from moorage.products.rules import checks, service, trial
from moorage.products.rules.schemas import (
    HeaderRule,
    RedirectRule,
    SetHeadersInput,
    SetRedirectsInput,
    TriedRules,
    TryRulesInput,
)

RULES_BYTES = 2 * MB  # 1,000 rules of 2,000 characters each


def make_router(db: Database, sync_routes: SyncRoutes) -> Router:
    """Make the routes; `sync_routes` returns when the gateway serves the stored rules."""
    router = Router("Rules")
    _add_headers(router, db, sync_routes)
    _add_redirects(router, db, sync_routes)
    _add_test(router, db)
    return router


def _add_headers(router: Router, db: Database, sync_routes: SyncRoutes) -> None:
    @router.get("/projects/{name}/headers")
    def list_header_rules(tx: Tx, caller: Caller, name: str) -> list[HeaderRule]:
        """List the header rules of a project, in their order."""
        return [HeaderRule.of(row) for row in service.headers_of(tx, caller.org_id, name)]

    @router.put("/projects/{name}/headers", min_role=Role.MEMBER, body_limit=RULES_BYTES)
    async def set_header_rules(caller: Caller, name: str, body: SetHeadersInput, write: Write) -> list[HeaderRule]:
        """Replace all header rules of a project.

        Every rule with a matching source applies; among rules for the same header, the first one wins. `*` in the last
        segment of a source matches the rest of the path; elsewhere `*` and `:name` match one segment.
        """
        rules = body.rules()
        await db.peek(lambda tx: projects.get(tx, caller.org_id, name))
        await asyncio.to_thread(checks.check_headers, rules)

        def unit(tx: Tx) -> list[HeaderRule]:
            stored = service.set_headers(tx, caller.org_id, caller.as_actor, name, rules)
            return [HeaderRule.of(row) for row in stored]

        response = await write(unit)
        await sync_routes()
        return response


def _add_redirects(router: Router, db: Database, sync_routes: SyncRoutes) -> None:
    @router.get("/projects/{name}/redirects")
    def list_redirects(tx: Tx, caller: Caller, name: str) -> list[RedirectRule]:
        """List the redirects of a project, in their order."""
        return [RedirectRule.of(row) for row in service.redirects_of(tx, caller.org_id, name)]

    @router.put("/projects/{name}/redirects", min_role=Role.MEMBER, body_limit=RULES_BYTES)
    async def set_redirects(caller: Caller, name: str, body: SetRedirectsInput, write: Write) -> list[RedirectRule]:
        """Replace all redirects of a project.

        The first rule with a matching source applies, even if a file exists at the path. In the destination, `*` (or
        `:splat`) and `:name` are replaced by the text that they matched; the request's query is kept, unless the
        destination has its own. Redirect loops are refused.
        """
        rules = body.rules()
        own = await db.peek(lambda tx: service.own_addresses(tx, caller.org_id, name))
        await asyncio.to_thread(checks.check_redirects, rules, own)

        def unit(tx: Tx) -> list[RedirectRule]:
            stored = service.set_redirects(tx, caller.org_id, caller.as_actor, name, rules)
            return [RedirectRule.of(row) for row in stored]

        response = await write(unit)
        await sync_routes()
        return response


def _add_test(router: Router, db: Database) -> None:
    @router.post("/projects/{name}/redirects/test", body_limit=2 * RULES_BYTES)
    async def test_rules(caller: Caller, name: str, body: TryRulesInput) -> TriedRules:
        """Tell what the rules of a project do with a path, without a request to it.

        `redirects` lists each redirect on the way, `final` is the address at its end, and `headers` has the header
        rules that apply there. With `redirects` or `headers` in the body, those rules are tried instead of the stored
        ones; nothing is stored.
        """
        stored = await db.peek(lambda tx: service.rules_of(tx, caller.org_id, name))
        own = await db.peek(lambda tx: service.own_addresses(tx, caller.org_id, name))
        redirects = stored.redirects if body.redirects is None else [each.rule() for each in body.redirects]
        headers = stored.headers if body.headers is None else [each.rule() for each in body.headers]

        def check_and_try() -> trial.Trial:
            if body.redirects is not None:
                checks.check_redirects(redirects, own)
            if body.headers is not None:
                checks.check_headers(headers)
            return trial.try_path(redirects, headers, own, body.path)

        return TriedRules.of(body.path, await asyncio.to_thread(check_and_try))
