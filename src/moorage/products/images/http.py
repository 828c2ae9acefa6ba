"""The OCI distribution API at `/v2/<organization>/<project>/…`, for `docker push` and other clients.

Requests are authorized like API requests, with the token as the password. Bodies of blobs are written to disk as they
arrive. A pushed tag deploys the project. Errors have the format of the specification.
"""

from __future__ import annotations

import re
from functools import partial

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.gate import IdentityGate
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.core import disk
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.answer import JSON, Answer, Headers, Stream, encode
from moorage.core.http.dispatch import AccessRequest
from moorage.core.http.request import BodyTooLarge, Request, uncounted
from moorage.core.http.route import Route, Scope, declare
from moorage.errors import DiskFull, MoorageError, Unauthorized
from moorage.products.images.blob_http import Blobs
from moorage.products.images.failures import Refused, refusal_of
from moorage.products.images.manifest_http import Manifests
from moorage.products.images.target import Target

PREFIX = "/v2/"
_PATH = re.compile(
    r"/v2/(?P<owner>[^/]+)/(?P<name>[^/]+)/"
    r"(?:blobs/uploads/?(?P<upload>[^/]*)|blobs/(?P<blob>[^/]+)|manifests/(?P<reference>[^/]+)|(?P<tags>tags/list))"
)
# Paths of the OCI specification with a name of any depth: an invalid name has its own error.
_ANY_IMAGE = re.compile(r"/v2/.+/(?:blobs|manifests|tags)/.*")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HEADERS: Headers = [(b"docker-distribution-api-version", b"registry/2.0")]
_CHALLENGE: Headers = [(b"www-authenticate", b'Basic realm="Moorage"')]
_READS = ("GET", "HEAD")
_UNCOUNTED = ("HEAD", "PATCH", "PUT")  # of blobs: an image has up to 256 layers


def _image_request() -> None:
    """Handler of the routes that the gate checks requests against; never called."""


_PING: Route = declare("GET", PREFIX, _image_request, tag="Images", scope=Scope.IDENTITY)
_READ: Route = declare("GET", PREFIX, _image_request, tag="Images", scope=Scope.ORG)
_WRITE: Route = declare("POST", PREFIX, _image_request, tag="Images", scope=Scope.ORG, min_role=Role.MEMBER)


class ImageServer:
    def __init__(self, db: Database, gate: IdentityGate, blobs: Blobs, manifests: Manifests) -> None:
        self._db = db
        self._gate = gate
        self._blobs = blobs
        self._manifests = manifests

    async def handle(self, request: Request) -> Answer | Stream | None:
        """Answer a request below `/v2/`; None for a path that the specification does not have."""
        if request.path != PREFIX and _ANY_IMAGE.fullmatch(request.path) is None:
            return None
        try:
            answer = await self._answer(request)
        except Refused as error:
            answer = _refusal(error)
        except BodyTooLarge as error:
            answer = _refusal(Refused(413, "SIZE_INVALID", error.message))
        except MoorageError as error:
            answer = _refusal(refusal_of(error))
        except OSError as error:
            if not disk.is_full(error):
                raise
            answer = _refusal(refusal_of(DiskFull()))
        answer.headers += _HEADERS
        return answer

    async def _answer(self, request: Request) -> Answer | Stream:
        if request.token is None:
            raise Unauthorized("log in with an API token as the password; any user name will do")
        if request.path == PREFIX:
            request.caller = await self._db.peek(partial(self._ping, request=request))
            return Answer(200, b"{}", [JSON])
        match = _PATH.fullmatch(request.path)
        if match is None or not _NAME.fullmatch(match["name"]):
            raise Refused(404, "NAME_INVALID", "an image is named <host>/<organization>/<project>:<tag>, in lower case")
        owner, name = match["owner"], match["name"]
        caller = await self._db.peek(partial(self._admit, request=request, owner=owner))
        request.caller = caller
        target = Target(request, caller, owner, name)
        if match["reference"] is not None:
            return await self._manifests.answer(target, match["reference"])
        if match["tags"] is not None:
            return await self._manifests.list_tags(target)
        if match["blob"] is not None:
            return await self._blobs.answer(target, match["blob"])
        return await self._blobs.answer_upload(target, match["upload"])

    @across_organizations("the credential identifies the user")
    def _ping(self, tx: Tx, request: Request) -> Caller:
        return self._gate.admit(tx, _PING, _access(request))

    @across_organizations("the credential identifies the organization")
    def _admit(self, tx: Tx, request: Request, owner: str) -> Caller:
        route = _READ if request.method in _READS else _WRITE
        caller = self._gate.admit_to(tx, route, _access(request), owner)
        slug = orgs.get(tx, caller.org_id).slug
        if owner != slug:
            raise Refused(
                404, "NAME_UNKNOWN", f"this login is for the organization {slug!r}: use <host>/{slug}/<project>"
            )
        return caller


def _access(request: Request) -> AccessRequest:
    """Return the credential of a request. Of the requests for a blob, only the one that begins its upload counts."""
    count_request = request.count_request
    if request.method in _UNCOUNTED and "/blobs/" in request.path:
        request.count_request = uncounted

        def count(is_valid: bool) -> None:
            if not is_valid:
                count_request(False)

        return AccessRequest(request.token, None, None, request.client, count)
    return AccessRequest(request.token, None, None, request.client, count_request)


def _refusal(error: Refused) -> Answer:
    body = {"errors": [{"code": error.code, "message": error.message, "detail": error.detail}]}
    return Answer(error.status, encode(body), [JSON, *(_CHALLENGE if error.status == 401 else [])])
