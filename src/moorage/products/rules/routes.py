"""The header and redirect rules of a project. A change is answered only once the gateway serves it.

A thousand rules take a moment to look through, so that happens beside the event loop and outside of any transaction.
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
from moorage.products.projects.route_sync import Settle
from moorage.products.rules import checks, service
from moorage.products.rules.schemas import HeaderRule, RedirectRule, SetHeadersInput, SetRedirectsInput

RULES_BYTES = 2 * MB  # A thousand rules of two thousand characters each.


def make_router(db: Database, settle: Settle) -> Router:
    """Make the routes; `settle` returns when the gateway serves what the store says."""
    router = Router("Rules")
    _add_headers(router, db, settle)
    _add_redirects(router, db, settle)
    return router


def _add_headers(router: Router, db: Database, settle: Settle) -> None:
    @router.get("/projects/{name}/headers")
    def list_header_rules(tx: Tx, caller: Caller, name: str) -> list[HeaderRule]:
        """List the headers that a project's answers get, in the order of the rules."""
        return [HeaderRule.of(found) for found in service.headers_of(tx, caller.org_id, name)]

    @router.put("/projects/{name}/headers", floor=Role.MEMBER, body_limit=RULES_BYTES)
    async def set_header_rules(caller: Caller, name: str, body: SetHeadersInput, write: Write) -> list[HeaderRule]:
        """Replace all header rules of a project.

        Every rule whose source is the request's path applies; of those with one name, the last. A `*` in the last part
        of a source is all the rest of a path, before that it is one part, and so is `:name`.
        """
        rules = body.rules()
        await db.peek(lambda tx: projects.get(tx, caller.org_id, name))
        await asyncio.to_thread(checks.check_headers, rules)

        def unit(tx: Tx) -> list[HeaderRule]:
            stored = service.set_headers(tx, caller.org_id, caller.as_actor, name, rules)
            return [HeaderRule.of(found) for found in stored]

        shown = await write(unit)
        await settle()
        return shown


def _add_redirects(router: Router, db: Database, settle: Settle) -> None:
    @router.get("/projects/{name}/redirects")
    def list_redirects(tx: Tx, caller: Caller, name: str) -> list[RedirectRule]:
        """List a project's redirects in their order."""
        return [RedirectRule.of(found) for found in service.redirects_of(tx, caller.org_id, name)]

    @router.put("/projects/{name}/redirects", floor=Role.MEMBER, body_limit=RULES_BYTES)
    async def set_redirects(caller: Caller, name: str, body: SetRedirectsInput, write: Write) -> list[RedirectRule]:
        """Replace all redirects of a project.

        The first rule whose source is the request's path answers, also where there is a file. In the destination, `*`
        (or `:splat`) and `:name` are what they stood for in the path; the query is kept, unless the destination has its
        own. Redirects that lead in a circle are refused.
        """
        rules = body.rules()
        own = await db.peek(lambda tx: service.own_addresses(tx, caller.org_id, name))
        await asyncio.to_thread(checks.check_redirects, rules, own)

        def unit(tx: Tx) -> list[RedirectRule]:
            stored = service.set_redirects(tx, caller.org_id, caller.as_actor, name, rules)
            return [RedirectRule.of(found) for found in stored]

        shown = await write(unit)
        await settle()
        return shown
