"""HTTP routes of queries and tables."""

from __future__ import annotations

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.http.request import Request, finish_unless_gone
from moorage.core.http.route import Router
from moorage.errors import Forbidden
from moorage.products.databases.queries.schemas import (
    DatabaseQueryInput,
    DatabaseQueryResult,
    DatabaseTableDetail,
    DatabaseTables,
)
from moorage.products.databases.queries.service import Queries

TABLE_PATH = "/v1/databases/{name}/tables/{schema}/{table}"


def make_router(queries: Queries) -> Router:
    router = Router("Databases")

    @router.post("/databases/{name}/query", min_role=Role.MEMBER, secret=True)
    async def query_database(
        caller: Caller, request: Request, name: str, body: DatabaseQueryInput
    ) -> DatabaseQueryResult:
        """Run one SQL statement on a running database, and record it in the activity feed.

        The statement can only read, unless an admin sends `write`. It ends after 10 seconds, and the answer has at most
        1,000 rows and 4 MB: `truncated` says that there are more. `rowCount` counts the rows of the answer, or the
        rows that a statement without a result changed. Values are null, text, or as `format` says: `number`,
        `boolean`, `json`, `hex` (text with the prefix `\\x`) or `datetime` (ISO 8601). Large integers and decimals are
        text. An error of the server is a `bad_request` with its message in `fields.sql`, and `fields.position`, the
        place in the statement, if the server names one.
        """
        if body.write and not caller.role.reaches(Role.ADMIN):
            raise Forbidden("A statement that writes needs the admin role")
        work = queries.run(caller.org_id, caller.as_actor, name, body.sql, may_write=body.write)
        result, took_ms = await finish_unless_gone(request, work)
        return DatabaseQueryResult.of(result, took_ms)

    @router.get("/databases/{name}/tables", min_role=Role.MEMBER, identifies=((TABLE_PATH, "name"),))
    async def list_tables(caller: Caller, request: Request, name: str) -> DatabaseTables:
        """List the tables and views of a running database, by schema and name, 5,000 at most.

        `rowEstimate` is the server's estimate, and `sizeBytes` includes indexes. Both are null for views.
        """
        return DatabaseTables.of(await queries.tables(caller.org_id, name))

    @router.get("/databases/{name}/tables/{schema}/{table}", min_role=Role.MEMBER)
    async def read_table(caller: Caller, request: Request, name: str, schema: str, table: str) -> DatabaseTableDetail:
        """Return the columns and indexes of a table or view.

        `selectSql` is a statement for `POST /v1/databases/{name}/query` that reads its first 100 rows.
        """
        return DatabaseTableDetail.of(await queries.table(caller.org_id, name, schema, table))

    return router
