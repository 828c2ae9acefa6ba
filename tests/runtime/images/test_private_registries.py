"""Credentials of registries: who gets them, and who may use images that were pulled with them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.runtime.images.registry_support import (
    LOOPBACK,
    QUICK,
    Before,
    Entry,
    Front,
    RegistryServer,
    fronting,
    layer,
    running_registry,
)

from moorage.core.kit.clock import ManualClock
from moorage.runtime.images.references import PullFailed, Reference
from moorage.runtime.images.sign_in import Credentials
from moorage.runtime.images.sources import Sources
from moorage.runtime.images.store import Images

pytestmark = pytest.mark.anyio

ADA, EVE = 1, 2
USER, SECRET = "ada", "open:sesame"
BASIC = "Basic " + base64.b64encode(f"{USER}:{SECRET}".encode()).decode()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with running_registry(tmp_path_factory.mktemp("registry")) as server:
        yield server


def push(registry: RegistryServer, repository: str = "team/secret") -> str:
    return registry.push(repository, layer(Entry("secret.txt", b"for the team")), architecture="amd64", Cmd=["/run"])


def images_at(folder: Path, *known: Credentials) -> Images:
    """A store in which the first organization has these credentials."""

    async def find(org_id: int, registry: str) -> Credentials | None:
        return next((each for each in known if org_id == ADA and each.registry == registry), None)

    sources = Sources(LOOPBACK, QUICK, find)
    return Images(folder / "images", LOOPBACK, ManualClock(), architecture="amd64", sources=sources)


def account_at(front: Front, **options: Any) -> Credentials:
    return Credentials(f"127.0.0.1:{front.port}", USER, SECRET, **options)


def challenge(header: str) -> web.Response:
    errors = {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}
    return web.Response(status=401, text=json.dumps(errors), headers={"WWW-Authenticate": header})


async def wants_basic(request: web.Request) -> web.StreamResponse | None:
    return None if request.headers.get("Authorization") == BASIC else challenge('Basic realm="Registry"')


def wants_token_of(realm: str) -> Before:
    async def before(request: web.Request) -> web.StreamResponse | None:
        if request.path == "/token":
            return web.json_response({"token": "fine" if request.headers.get("Authorization") == BASIC else "poor"})
        return None if request.headers.get("Authorization") == "Bearer fine" else challenge(f'Bearer realm="{realm}"')

    return before


def authorizations(front: Front) -> set[str]:
    return {request.headers["Authorization"] for request in front.requests if "Authorization" in request.headers}


async def pull(images: Images, reference: Reference, org_id: int = ADA) -> str:
    image = await images.pull(reference, lambda line: None, org_id)
    assert (image.root / "secret.txt").read_text() == "for the team"
    return image.digest


async def test_a_registry_with_passwords_gets_the_password_of_the_organization(
    registry: RegistryServer, tmp_path: Path
) -> None:
    digest = push(registry)

    async with fronting(registry, wants_basic) as front:
        pulled = await pull(images_at(tmp_path, account_at(front)), front.server.reference("team/secret"))

    assert pulled == digest
    assert authorizations(front) == {BASIC}


async def test_a_token_is_fetched_with_the_password_which_goes_to_no_other_request(
    registry: RegistryServer, tmp_path: Path
) -> None:
    digest = push(registry)

    async with fronting(registry, wants_token_of("/token")) as front:
        pulled = await pull(images_at(tmp_path, account_at(front)), front.server.reference("team/secret"))

    assert pulled == digest
    assert {each.headers.get("Authorization") for each in front.asked("/token")} == {BASIC}
    assert BASIC not in {each.headers.get("Authorization") for each in front.asked("/v2/")}


async def test_both_challenges_lead_to_a_token(registry: RegistryServer, tmp_path: Path) -> None:
    async def before(request: web.Request) -> web.StreamResponse | None:
        answer = await wants_token_of("/token")(request)
        if answer is not None and answer.status == 401:
            answer.headers.popone("WWW-Authenticate")
            answer.headers.add("WWW-Authenticate", 'Basic realm="Registry"')
            answer.headers.add("WWW-Authenticate", 'Bearer realm="/token"')
        return answer

    digest = push(registry)

    async with fronting(registry, before) as front:
        assert await pull(images_at(tmp_path, account_at(front)), front.server.reference("team/secret")) == digest


@pytest.mark.boundary("tenant-to-network", "Credentials of a registry are sent to that registry only.")
async def test_the_password_is_not_sent_to_another_host_for_a_token(registry: RegistryServer, tmp_path: Path) -> None:
    push(registry)

    async with fronting(registry) as thief:
        async with fronting(registry, wants_token_of(f"http://127.0.0.1:{thief.port}/token")) as front:
            for token_host in ("", f"127.0.0.1:{thief.port}"):  # The second is named, and has no TLS.
                account = account_at(front, token_host=token_host)
                with pytest.raises(PullFailed, match=r"wants the password at 127.0.0.1:[0-9]+; set tokenHost"):
                    await pull(images_at(tmp_path, account), front.server.reference("team/secret"))

    assert thief.requests == []


@pytest.mark.boundary("tenant-to-network", "Credentials of a registry are sent to that registry only.")
@pytest.mark.parametrize("part", ["/token", "/manifests/", "/blobs/"])
async def test_neither_password_nor_token_follows_a_redirect(
    registry: RegistryServer, tmp_path: Path, part: str
) -> None:
    push(registry)
    wants = wants_token_of("/token")

    async def give(request: web.Request) -> web.StreamResponse | None:
        return web.json_response({"token": "fine"}) if request.path == "/token" else None

    async with fronting(registry, give) as elsewhere:

        async def before(request: web.Request) -> web.StreamResponse | None:
            answer = await wants(request)
            if part not in request.path or (answer is not None and answer.status == 401):
                return answer
            url = f"http://127.0.0.1:{elsewhere.port}{request.raw_path}"
            return web.Response(status=307, headers={"Location": url})

        async with fronting(registry, before) as front:
            await pull(images_at(tmp_path, account_at(front)), front.server.reference("team/secret"))

    assert elsewhere.requests != []
    assert authorizations(elsewhere) == set()


async def test_a_wrong_password_is_named_without_itself(registry: RegistryServer, tmp_path: Path) -> None:
    push(registry)

    async with fronting(registry, wants_basic) as front:
        account = Credentials(f"127.0.0.1:{front.port}", USER, "wrong-one")
        with pytest.raises(PullFailed, match="authentication required; it was asked as 'ada'") as raised:
            await pull(images_at(tmp_path, account), front.server.reference("team/secret"))

    assert "wrong-one" not in str(raised.value) + repr(account)


@pytest.mark.boundary("tenant-to-tenant", "A private image is not readable to an organization without access to it.")
async def test_a_stored_private_image_is_refused_to_an_organization_without_access(
    registry: RegistryServer, tmp_path: Path
) -> None:
    digest = push(registry)

    async with fronting(registry, wants_basic) as front:
        images = images_at(tmp_path, account_at(front))
        await pull(images, front.server.reference("team/secret"))

        for reference in (
            front.server.reference("team/secret"),
            front.server.reference("team/secret", None, digest),
            Reference("127.0.0.1:9", "team/secret", None, digest),  # no registry there
        ):
            with pytest.raises(PullFailed, match=r"a private image needs credentials|cannot connect"):
                await pull(images, reference, EVE)

        # The same organization loses access together with its credentials, also by the digest.
        images = images_at(tmp_path)
        with pytest.raises(PullFailed, match="a private image needs credentials"):
            await pull(images, front.server.reference("team/secret", None, digest), ADA)


@pytest.mark.boundary("tenant-to-tenant", "A private image is not readable to an organization without access to it.")
async def test_the_manifest_of_a_private_image_alone_does_not_give_its_files(
    registry: RegistryServer, tmp_path: Path
) -> None:
    push(registry)

    async def without_layers(request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=404) if "/blobs/" in request.path else None

    async with fronting(registry, wants_basic) as front, fronting(registry, without_layers) as copycat:
        images = images_at(tmp_path, account_at(front))
        await pull(images, front.server.reference("team/secret"))

        with pytest.raises(PullFailed, match="HTTP status 404"):
            await pull(images, copycat.server.reference("team/secret"), EVE)


async def test_who_has_all_layers_elsewhere_shares_the_stored_files(registry: RegistryServer, tmp_path: Path) -> None:
    digest = push(registry)

    async with fronting(registry, wants_basic) as front, fronting(registry) as public:
        images = images_at(tmp_path, account_at(front))
        await pull(images, front.server.reference("team/secret"))

        first = await pull(images, public.server.reference("team/secret"), EVE)
        count = len(public.asked("/blobs/"))
        again = await pull(images, public.server.reference("team/secret"), EVE)

    assert first == again == digest
    assert count == len(public.asked("/blobs/")) > 0


async def test_an_image_that_needs_no_password_stays_public(registry: RegistryServer, tmp_path: Path) -> None:
    digest = push(registry)

    async with fronting(registry) as front:
        images = images_at(tmp_path, account_at(front))
        await pull(images, front.server.reference("team/secret"))
        count = len(front.requests)

        await pull(images, front.server.reference("team/secret", None, digest), EVE)

    assert authorizations(front) == set()
    assert len(front.requests) == count
