"""Routes of functions, except those of their records.

A change is answered after the edge has it, so that a call right after the response uses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast
from uuid import uuid4

import msgspec

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.answer import failure
from moorage.core.http.envvars import RevealedSecret, RevealInput, SecretName
from moorage.core.http.forms import Form
from moorage.core.http.idempotency.once import Write
from moorage.core.http.paging import Page, PageQuery
from moorage.core.http.request import Request
from moorage.core.http.route import Router, Upload
from moorage.core.http.waiting import Progress
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.errors import BadRequest, NotFound, RateLimited
from moorage.products.functions import code, service, sources, variables
from moorage.products.functions.contents import BadPackage
from moorage.products.functions.edge_client import Call, EdgeClient, Outcome
from moorage.products.functions.packages import PACKED_BYTES, Packages
from moorage.products.functions.publisher import Publisher
from moorage.products.functions.schemas import (
    FILES,
    CreateFunctionForm,
    FunctionDetail,
    FunctionFiles,
    FunctionListItem,
    FunctionRollbackInput,
    FunctionToken,
    FunctionVersion,
    InvokeFunctionInput,
    InvokeFunctionResult,
    UpdateFunctionInput,
    get_file,
    read_create_form,
)
from moorage.products.functions.tables import Function
from moorage.runtime.workers import runtimes

_CHANGED_BY = (
    ("currentVersion", "POST /v1/functions/{name}/rollback or POST /v1/functions/{name}/deploy"),
    *((field_name, "POST /v1/functions/{name}/deploy") for field_name in FILES),
)
BUSY_S = 1  # Retry-After of a full queue; calls are short


@dataclass(frozen=True)
class FunctionServices:
    """Dependencies of the routes."""

    db: Database
    packages: Packages
    publisher: Publisher
    edge: EdgeClient
    sandbox_state: Callable[[], str]  # `on`, or the restriction to show to users

    def detail(self, tx: Tx, org_id: int, function: Function) -> FunctionDetail:
        env = variables.read_env_text(tx, org_id, function.id)
        return FunctionDetail.of(function, env, self.db.env.settings, self.sandbox_state())

    async def change(self, write: Write, unit: Callable[[Tx], Function]) -> FunctionDetail:
        """Change a function, publish it to the edge, and return it."""

        def changed(tx: Tx) -> tuple[Function, FunctionDetail]:
            function = unit(tx)
            return function, self.detail(tx, function.org_id, function)

        function, detail = await write(changed, answer=lambda result: result[1])
        await self.publisher.publish(function.org_id, function.id)
        return detail


def _follow_change(tx: Tx, caller: Caller, answer: FunctionDetail, path: Mapping[str, Any]) -> Progress:
    """Return the answer with its status: a change of a function has ended when it is answered."""
    return Progress(msgspec.structs.replace(answer, status="succeeded"), True)


def make_router(services: FunctionServices) -> Router:
    router = Router("Functions")
    _add_reads(router, services)
    _add_uploads(router, services)
    _add_changes(router, services)
    _add_secrets(router)
    _add_calls(router, services)
    return router


def _add_reads(router: Router, services: FunctionServices) -> None:
    @router.get("/functions")
    def list_functions(tx: Tx, caller: Caller, query: PageQuery) -> Page[FunctionListItem]:
        """List the organization's functions, newest first."""
        functions = service.page(tx, caller.org_id, offset=query.offset, most=query.page_size)
        return Page([FunctionListItem.of(function) for function in functions], service.count(tx, caller.org_id))

    @router.get("/functions/token", point=True)
    def read_function_token(tx: Tx, caller: Caller) -> FunctionToken:
        """Return the organization's function token, masked."""
        return FunctionToken(service.masked_token(tx, caller.org_id))

    @router.get("/functions/{name}", point=True)
    def read_function(tx: Tx, caller: Caller, name: str) -> FunctionDetail:
        """Return a function with its settings."""
        return services.detail(tx, caller.org_id, service.get(tx, caller.org_id, name))

    @router.get("/functions/{name}/versions")
    def list_function_versions(tx: Tx, caller: Caller, name: str) -> list[FunctionVersion]:
        """List the versions of a function, newest first.

        All versions are kept until the function is deleted.
        """
        function = service.get(tx, caller.org_id, name)
        versions = service.versions(tx, caller.org_id, function)
        return [FunctionVersion.of(version, function) for version in versions]

    @router.get("/functions/{name}/versions/{version}/files", min_role=Role.MEMBER)
    async def read_function_files(caller: Caller, request: Request, name: str, version: int) -> FunctionFiles:
        """Return the files of a version, without its dependencies.

        `text` is null for a file that is not UTF-8 text or is larger than 256 KB. There are at most 200 files
        (`truncated` says that there are more) and 2 MB of text.
        """
        record = await services.db.read(lambda tx: service.get_version(tx, caller.org_id, name, version))
        folder = await code.ensure_unpacked(
            services.db.env.settings, services.publisher.artifacts, caller.org_id, record.digest
        )
        return FunctionFiles.of(record, await asyncio.to_thread(sources.read, folder))


def _add_uploads(router: Router, services: FunctionServices) -> None:
    db, packages = services.db, services.packages

    @router.post(
        "/functions",
        min_role=Role.MEMBER,
        upload=Upload(FILES, PACKED_BYTES, CreateFunctionForm),
        follow=_follow_change,
    )
    async def create_function(caller: Caller, form: Form, write: Write) -> FunctionDetail:
        """Create a function from a ZIP archive of its code.

        The archive is sent in the field `code` (or `file`). The main file is at its root or in its only top folder.
        Dependencies listed in package.json or requirements.txt are installed, unless the archive contains them.
        """
        await asyncio.to_thread(runtimes.installed)  # The first call runs each runtime to get its version.
        fields, archive, field_name = read_create_form(form)
        org_id, standing, new = caller.org_id, caller.standing, fields.as_new()
        assert standing is not None
        await db.peek(lambda tx: service.check_may_create(tx, org_id, new.name, standing))
        try:
            async with packages.ready(org_id, archive.path, new.runtime) as package:
                make = partial(service.create, org_id=org_id, actor=caller.as_actor, standing=standing)
                return await services.change(write, partial(make, new=new, package=package))
        except BadPackage as error:
            raise bad_package(field_name, error) from error

    @router.post(
        "/functions/{name}/deploy",
        min_role=Role.MEMBER,
        upload=Upload(FILES, PACKED_BYTES),
        follow=_follow_change,
    )
    async def deploy_function(caller: Caller, name: str, form: Form, write: Write) -> FunctionDetail:
        """Deploy a ZIP archive as the function's next version.

        Running calls finish on the version they started on; every later call runs on the new version.
        """
        function = await db.peek(lambda tx: service.get(tx, caller.org_id, name))
        archive, field_name = get_file(form)
        try:
            async with packages.ready(caller.org_id, archive.path, function.runtime) as package:
                deploy = partial(service.deploy, org_id=caller.org_id, actor=caller.as_actor)
                return await services.change(write, partial(deploy, function_id=function.id, package=package))
        except BadPackage as error:
            raise bad_package(field_name, error) from error


def bad_package(field_name: str, error: BadPackage) -> BadRequest:
    """Return the error of an archive, for `code` and for the field that held it."""
    return BadRequest("The request is not valid", fields={name: str(error) for name in ("code", field_name)})


def _add_changes(router: Router, services: FunctionServices) -> None:
    @router.patch("/functions/{name}", min_role=Role.MEMBER, changed_by=_CHANGED_BY, follow=_follow_change)
    async def update_function(caller: Caller, name: str, body: UpdateFunctionInput, write: Write) -> FunctionDetail:
        """Update the settings of a function, for calls that start after the response.

        `env` replaces all variables and `secrets` all secrets; a secret without a value keeps its stored value.
        """
        change = partial(service.update, org_id=caller.org_id, actor=caller.as_actor, secrets=body.wanted_secrets())
        return await services.change(write, partial(change, name=name, changes=body.changes()))

    @router.post("/functions/{name}/rollback", min_role=Role.MEMBER, follow=_follow_change)
    async def roll_function_back(
        caller: Caller, name: str, body: FunctionRollbackInput, write: Write
    ) -> FunctionDetail:
        """Make an existing version of a function its current one."""
        change = partial(service.rollback, org_id=caller.org_id, actor=caller.as_actor)
        return await services.change(write, partial(change, name=name, version=body.version))

    @router.delete("/functions/{name}", min_role=Role.MEMBER)
    async def delete_function(caller: Caller, name: str, write: Write) -> None:
        """Delete a function with its code, versions, schedules and records."""
        remove = partial(service.delete, org_id=caller.org_id, actor=caller.as_actor, name=name)
        purge = await write(remove, answer=lambda _: None)
        await services.publisher.publish(purge.org_id, purge.function_id)
        await code.remove_unused(services.db, purge.digests)


def _add_secrets(router: Router) -> None:
    @router.get("/functions/{name}/secrets", min_role=Role.MEMBER)
    def list_function_secrets(tx: Tx, caller: Caller, name: str) -> list[SecretName]:
        """List the names of a function's secrets."""
        function = service.get(tx, caller.org_id, name)
        return [SecretName(each) for each in vault.names(tx, caller.org_id, variables.secrets_of(function.id))]

    @router.post("/functions/{name}/secrets/reveal", min_role=Role.MEMBER, secret=True)
    def reveal_function_secret(tx: Tx, caller: Caller, name: str, body: RevealInput) -> RevealedSecret:
        """Show one secret. The caller is recorded in the activity feed."""
        value = service.reveal(tx, caller.org_id, caller.as_actor, name, body.name)
        return RevealedSecret(body.name, value)


def _add_calls(router: Router, services: FunctionServices) -> None:
    @router.post("/functions/{name}/invoke", body_optional=True)
    async def invoke_function(
        caller: Caller, request: Request, name: str, body: InvokeFunctionInput
    ) -> InvokeFunctionResult:
        """Run a function with any JSON value and return its result.

        The body is the payload, or an object with the single key `params`. If the function fails, the response is a
        success with the `status` `error`.
        """
        function = await services.db.peek(lambda tx: service.get(tx, caller.org_id, name))
        call = Call(function.id, uuid4().hex, "api", body.params)
        try:
            return InvokeFunctionResult.of(await _run(services, caller.org_id, call))
        except RateLimited as error:
            return busy_response(error, request)


def busy_response(error: RateLimited, request: Request) -> InvokeFunctionResult:
    """Return the response of a full queue, with Retry-After."""
    response = failure(error, request.trace_id)
    response.headers.append((b"retry-after", b"%d" % BUSY_S))
    # The return type documents the success; the dispatcher sends a complete response unchanged.
    return cast(InvokeFunctionResult, response)


async def _run(services: FunctionServices, org_id: int, call: Call) -> Outcome:
    try:
        return await services.edge.invoke(call)
    except NotFound:
        # The function exists, so an edge without it has just started; a refused call did not run.
        await services.publisher.publish(org_id, call.function_id)
        return await services.edge.invoke(call)
