"""The registry client, with a real registry and one that redirects, fails and lies."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web
from tests.ports import free_port
from tests.runtime.images.registry_support import (
    LOOPBACK,
    QUICK,
    Before,
    Entry,
    RegistryServer,
    digest_of,
    fronting,
    layer,
    running_registry,
)

from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import TargetPolicy
from moorage.runtime.images.manifests import Descriptor, Index, Manifest, parse_config, parse_manifest
from moorage.runtime.images.references import PullFailed, Reference
from moorage.runtime.images.registry import PullSettings, Registry, base_url

pytestmark = pytest.mark.anyio

SECOND_BLOCKED = TargetPolicy(allow_loopback=True, extra_blocked=("127.0.0.2/32",))
BODY = os.urandom(100_000)
PART = Descriptor("", digest_of(BODY), len(BODY))
DIGEST = "sha256:" + "0" * 64


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with running_registry(tmp_path_factory.mktemp("registry")) as server:
        server.push_blob("team/tool", BODY)
        yield server


@asynccontextmanager
async def speaking(
    reference: Reference, *, targets: TargetPolicy = LOOPBACK, terms: PullSettings = QUICK
) -> AsyncIterator[Registry]:
    async with GuardedClient(targets) as client:
        yield Registry(client, targets, reference, terms)


async def read(front: RegistryServer, targets: TargetPolicy = LOOPBACK, terms: PullSettings = QUICK) -> bytes:
    async with speaking(front.reference("team/tool"), targets=targets, terms=terms) as speaker:
        return await speaker.read(PART, len(BODY))


def refusing(status: int, reason: str = "", **headers: str) -> Before:
    async def before(request: web.Request) -> web.Response:
        body = json.dumps({"errors": [{"code": "NAME_UNKNOWN", "message": reason}]}) if reason else "Sorry"
        return web.Response(status=status, text=body, headers={n.replace("_", "-"): v for n, v in headers.items()})

    return before


def sending_elsewhere(url: str) -> Before:
    async def before(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": url + request.raw_path})

    return before


def wanting_token(realm: str, token: str = "open-sesame") -> Before:
    async def before(request: web.Request) -> web.Response | None:
        if request.headers.get("Authorization") == f"Bearer {token}":
            return None
        challenge = f'Bearer realm="{realm}",service="the registry",scope="repository:team/tool:pull"'
        return web.json_response(
            {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]},
            status=401,
            headers={"WWW-Authenticate": challenge},
        )

    return before


def giving(document: dict[str, Any], status: int = 200) -> Before:
    async def before(request: web.Request) -> web.Response:
        return web.json_response(document, status=status)

    return before


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("docker.io", "https://registry-1.docker.io"),
        ("ghcr.io", "https://ghcr.io"),
        ("localhost:5000", "http://localhost:5000"),
        ("127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("[::1]:5000", "http://[::1]:5000"),
        ("10.0.0.1:5000", "https://10.0.0.1:5000"),
        ("localhost.example.com", "https://localhost.example.com"),
    ],
)
def test_plain_http_is_spoken_to_this_machine_alone(name: str, url: str) -> None:
    assert str(base_url(name, LOOPBACK)) == url
    assert base_url(name, TargetPolicy()).scheme == "https"


async def test_a_manifest_is_found_by_its_tag_and_by_its_digest(registry: RegistryServer) -> None:
    packed = layer(Entry("file"))
    digest = registry.push("team/tool", packed, tag="v1")

    async with speaking(registry.reference("team/tool")) as speaker:
        by_tag = await speaker.manifest("v1")
        by_digest = await speaker.manifest(digest)

    assert by_tag == by_digest
    assert by_tag[0] == digest
    assert isinstance(by_tag[1], Manifest)
    assert [part.digest for part in by_tag[1].layers] == [digest_of(packed)]


@pytest.mark.parametrize(
    ("repository", "tag", "reason"),
    [("team/tool", "v99", "manifest unknown"), ("nobody/nothing", "latest", "(manifest unknown|repository name not)")],
)
async def test_what_the_registry_does_not_know_is_said_in_its_words(
    registry: RegistryServer, repository: str, tag: str, reason: str
) -> None:
    registry.push("team/tool", layer(Entry("file")), tag="v1")

    async with speaking(registry.reference(repository)) as speaker:
        with pytest.raises(PullFailed, match=f"^the registry says: {reason}"):
            await speaker.manifest(tag)


async def test_a_blob_is_fetched_in_pieces_and_checked(registry: RegistryServer, tmp_path: Path) -> None:
    target = tmp_path / "blob"

    async with speaking(registry.reference("team/tool"), terms=PullSettings(piece_bytes=30_000)) as speaker:
        await speaker.download(PART, target)

    assert target.read_bytes() == BODY


async def test_an_empty_blob_is_a_blob(registry: RegistryServer, tmp_path: Path) -> None:
    async with speaking(registry.reference("team/tool")) as speaker:
        await speaker.download(Descriptor("", digest_of(b""), 0), tmp_path / "blob")

    assert (tmp_path / "blob").read_bytes() == b""


async def test_a_registry_that_knows_no_pieces_sends_the_whole(registry: RegistryServer) -> None:
    terms = PullSettings(piece_bytes=30_000)

    async with fronting(registry, drops=frozenset({"Range"})) as front:
        body = await read(front.server, terms=terms)
        with pytest.raises(PullFailed, match=r"does not support range requests"):
            await read(front.server, terms=PullSettings(piece_bytes=30_000, whole_bytes=50_000))

    assert body == BODY


async def test_a_token_is_fetched_from_where_the_registry_says(registry: RegistryServer) -> None:
    async with (
        fronting(registry, giving({"token": "open-sesame"})) as issuer,
        fronting(registry, wanting_token(f"http://127.0.0.1:{issuer.port}/token?x=1")) as front,
    ):
        body = await read(front.server, terms=PullSettings(piece_bytes=30_000))

    assert body == BODY
    assert [parse_qs(urlsplit(request.raw_path).query) for request in issuer.requests] == [
        {"x": ["1"], "service": ["the registry"], "scope": ["repository:team/tool:pull"]}
    ]
    assert "Authorization" not in issuer.requests[0].headers


async def test_a_token_that_runs_out_meanwhile_is_fetched_anew(registry: RegistryServer) -> None:
    async with fronting(registry, giving({"access_token": "open-sesame"})) as issuer:
        realm = f"http://127.0.0.1:{issuer.port}/token"
        wants, no_more = wanting_token(realm), wanting_token(realm, "another")

        async def before(request: web.Request) -> web.StreamResponse | None:
            return await (no_more if len(front.requests) == 3 else wants)(request)

        async with fronting(registry, before) as front:
            body = await read(front.server, terms=PullSettings(piece_bytes=60_000))

    assert body == BODY
    assert len(issuer.requests) == 2


async def test_an_image_that_needs_an_account_is_refused(registry: RegistryServer) -> None:
    async with (
        fronting(registry, giving({"token": "useless"})) as issuer,
        fronting(registry, wanting_token(f"http://127.0.0.1:{issuer.port}/")) as front,
    ):
        with pytest.raises(
            PullFailed, match="the registry says: authentication required; a private image needs credentials"
        ):
            await read(front.server)

        assert len(front.requests) == 2


@pytest.mark.parametrize(
    ("challenge", "answer", "why"),
    [
        ('Basic realm="x"', {}, "wants a password"),
        ("Bearer " + "a" * 5000, {}, "challenge has more than 4,096 characters"),
        ("", {}, "wants a password"),
        ('Bearer service="no realm"', {}, "wants a password"),
        ('Bearer realm="http://{issuer}/"', {}, "gave no token"),
        ('Bearer realm="http://{issuer}/"', {"token": "two\r\nlines"}, "gave no token"),
        ('Bearer realm="http://{issuer}/"', {"token": 7}, "gave no token"),
        ('Bearer realm="http://192.0.2.1/"', {}, "refers to 192.0.2.1 without https"),
        ('Bearer realm="ftp://{issuer}/"', {}, "cannot call this URL|without https"),
    ],
)
async def test_a_sign_in_that_leads_nowhere_is_refused(
    registry: RegistryServer, challenge: str, answer: dict[str, Any], why: str
) -> None:
    async with fronting(registry, giving(answer)) as issuer:
        said = challenge.format(issuer=f"127.0.0.1:{issuer.port}")
        async with fronting(registry, refusing(401, WWW_Authenticate=said)) as front:
            with pytest.raises(PullFailed, match=why):
                await read(front.server)


async def test_a_redirect_is_followed_without_the_token_and_with_the_piece(registry: RegistryServer) -> None:
    async with (
        fronting(registry) as storage,
        fronting(registry, giving({"token": "open-sesame"})) as issuer,
    ):
        wants = wanting_token(f"http://127.0.0.1:{issuer.port}/")
        leads = sending_elsewhere(f"http://127.0.0.1:{storage.port}")

        async def before(request: web.Request) -> web.StreamResponse | None:
            return await wants(request) or await leads(request)

        async with fronting(registry, before) as front:
            body = await read(front.server, terms=PullSettings(piece_bytes=60_000))

    assert body == BODY
    assert [request.headers["Range"] for request in storage.requests] == ["bytes=0-59999", "bytes=60000-99999"]
    assert [request for request in storage.requests if "Authorization" in request.headers] == []


async def test_redirects_do_not_go_on_for_ever(registry: RegistryServer) -> None:
    async with fronting(registry, sending_elsewhere("")) as front:
        with pytest.raises(PullFailed, match="5 redirects in a row"):
            await read(front.server)

        assert len(front.requests) == 6


async def test_a_private_registry_is_not_called_where_the_policy_forbids_it(registry: RegistryServer) -> None:
    async with fronting(registry) as front:
        with pytest.raises(PullFailed, match=r"cannot call 127.0.0.1: loopback addresses are not allowed"):
            await read(front.server, TargetPolicy())

        assert front.requests == []


@pytest.mark.parametrize("name", ["10.0.0.1", "169.254.169.254", "192.168.1.1:5000", "[fd00::1]:5000"])
async def test_addresses_of_the_operators_network_are_refused(name: str) -> None:
    async with speaking(Reference(name, "tool", "latest", None)) as speaker:
        with pytest.raises(PullFailed, match="addresses are not allowed"):
            await speaker.manifest("latest")


async def test_neither_a_redirect_nor_a_sign_in_leads_to_a_forbidden_address(registry: RegistryServer) -> None:
    async with fronting(registry, host="127.0.0.2") as hidden:
        there = f"http://127.0.0.2:{hidden.port}"
        for before in (sending_elsewhere(there), wanting_token(f"{there}/token")):
            async with fronting(registry, before) as front:
                with pytest.raises(PullFailed, match=r"127\.0\.0\.2"):
                    await read(front.server, SECOND_BLOCKED)

    assert hidden.requests == []


async def test_a_redirect_to_plain_http_elsewhere_is_refused(registry: RegistryServer) -> None:
    async with fronting(registry, sending_elsewhere("http://192.0.2.1")) as front:
        with pytest.raises(PullFailed, match=r"the registry refers to 192.0.2.1 without https"):
            await read(front.server)


async def test_a_redirect_to_a_malformed_address_is_refused(registry: RegistryServer) -> None:
    async with fronting(registry, sending_elsewhere("http://[]@")) as front:
        with pytest.raises(PullFailed, match="the registry refers to an invalid address"):
            await read(front.server)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_busy_registry_is_asked_again(registry: RegistryServer, status: int) -> None:
    async def before(request: web.Request) -> web.StreamResponse | None:
        return await refusing(status, Retry_After="7200")(request) if len(front.requests) < 3 else None

    async with fronting(registry, before) as front:
        body = await read(front.server)

    assert body == BODY
    assert len(front.requests) == 3


async def test_a_registry_that_stays_busy_is_given_up(registry: RegistryServer) -> None:
    async with fronting(registry, refusing(429, "You have reached\nyour \x1b[1m limit")) as front:
        with pytest.raises(PullFailed) as failed:
            await read(front.server)

    assert str(failed.value) == "the registry says: You have reached your [1m limit"
    assert len(front.requests) == QUICK.tries


async def test_a_registry_that_is_not_there_is_an_error() -> None:
    with pytest.raises(PullFailed, match=r"cannot connect to 127.0.0.1"):
        await read(RegistryServer(free_port()))


async def test_a_status_stands_for_a_registry_without_words(registry: RegistryServer) -> None:
    async with fronting(registry, refusing(418)) as front:
        with pytest.raises(PullFailed, match=r"^the registry says: HTTP status 418$"):
            await read(front.server)


@pytest.mark.parametrize(
    "wrong", [bytes([BODY[0] ^ 1]) + BODY[1:], BODY[:-1], b""], ids=["changed", "shorter", "empty"]
)
async def test_a_blob_that_was_changed_on_the_way_is_refused(registry: RegistryServer, wrong: bytes) -> None:
    async with fronting(registry, change=lambda request, body: wrong, drops=frozenset({"Range"})) as front:
        with pytest.raises(PullFailed, match=r"does not match its digest|less of the image than the manifest"):
            await read(front.server)


async def test_a_manifest_that_was_changed_on_the_way_is_refused(registry: RegistryServer) -> None:
    digest = registry.push("team/tool", layer(Entry("file")), tag="v1")

    async with fronting(registry, change=lambda request, body: body + b" ") as front:
        async with speaking(front.server.reference("team/tool")) as speaker:
            for wanted in ("v1", digest):
                with pytest.raises(PullFailed, match="a manifest that does not match its digest"):
                    await speaker.manifest(wanted)


async def test_a_manifest_has_a_largest_size(registry: RegistryServer) -> None:
    registry.push("team/tool", layer(Entry("file")), tag="v1")

    async with fronting(registry, change=lambda request, body: body + b" " * 5 * 2**20) as front:
        async with speaking(front.server.reference("team/tool")) as speaker:
            with pytest.raises(PullFailed, match="manifest is larger than 4 MB"):
                await speaker.manifest("v1")


async def test_a_configuration_has_a_largest_size(registry: RegistryServer) -> None:
    async with speaking(registry.reference("team/tool")) as speaker:
        with pytest.raises(PullFailed, match="configuration is larger than"):
            await speaker.read(PART, len(BODY) - 1)


CONFIG = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": DIGEST, "size": 1}
GOOD = {"schemaVersion": 2, "config": CONFIG, "layers": []}
LAYER = {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": DIGEST, "size": 1}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"schemaVersion": 1, "fsLayers": []}, "old format of Docker"),
        ({"mediaType": "application/vnd.docker.distribution.manifest.v1+prettyjws"}, "old format of Docker"),
        ({**GOOD, "manifests": []}, "either layers"),
        ({"schemaVersion": 2}, "either layers"),
        ({**GOOD, "config": {**CONFIG, "mediaType": "application/vnd.cncf.helm.config.v1+json"}}, "no container"),
        ({**GOOD, "layers": [{**LAYER, "mediaType": f"{LAYER['mediaType']}+encrypted"}]}, "unsupported media type"),
        ({**GOOD, "layers": [{**LAYER, "digest": "sha256:../../x"}]}, "without a SHA-256"),
        ({**GOOD, "layers": [{**LAYER, "size": -1}]}, "without a size"),
        ({**GOOD, "layers": [{**LAYER, "size": True}]}, "without a size"),
        ({**GOOD, "layers": [LAYER] * 257}, "257 layers"),
        ({**GOOD, "layers": "many"}, "not a list"),
        ({**GOOD, "layers": ["one"]}, "not an object"),
        ([], "not an object"),
    ],
)  # fmt: skip
def test_a_manifest_that_is_none_is_refused(document: object, why: str) -> None:
    with pytest.raises(PullFailed, match=why):
        parse_manifest(json.dumps(document).encode(), "application/vnd.oci.image.manifest.v1+json; charset=utf-8")


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"{", b"[" * 90_000])
def test_a_manifest_that_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(PullFailed, match="not JSON"):
        parse_manifest(body, "")


@pytest.mark.parametrize(
    "values", [b"[" + b"[]," * 60_000 + b"0]", b"{" + b'"":0,' * 110_000 + b'"":0}', b"[" * 200_000], ids=len
)
def test_a_document_with_too_many_values_is_refused(values: bytes) -> None:
    body = b'{"annotations": %b}' % values

    with pytest.raises(PullFailed, match="the image's manifest has more than 100,000 values"):
        parse_manifest(body, "")
    with pytest.raises(PullFailed, match="the image's configuration has more than 100,000 values"):
        parse_config(body, "arm64")


def entry(number: int, **platform: object) -> dict[str, Any]:
    digest = "sha256:" + str(number) * 64
    kind = "application/vnd.oci.image.manifest.v1+json"
    return {"mediaType": kind, "digest": digest, "size": 1, "platform": platform}


def test_an_index_gives_the_image_that_every_machine_of_the_kind_can_run() -> None:
    index = Index(
        (
            entry(1, os="windows", architecture="arm64"),
            entry(2, os="linux", architecture="arm64", variant="v9"),
            entry(3, os="linux", architecture="arm64", variant="v8"),
            entry(4, os="linux", architecture="amd64", variant="v3"),
            entry(5, os="linux", architecture="amd64"),
            entry(6, os="unknown", architecture="unknown"),
            entry(7, os=["linux"], architecture={}),
            {"platform": "none"},
        )
    )

    assert index.choose("arm64").digest == "sha256:" + "3" * 64
    assert index.choose("amd64").digest == "sha256:" + "5" * 64
    with pytest.raises(PullFailed, match=r"exists for linux/amd64, .*; this machine is linux/riscv64"):
        index.choose("riscv64")


def test_an_index_that_leads_to_an_index_is_refused() -> None:
    inner = entry(1, os="linux", architecture="arm64") | {"mediaType": "application/vnd.oci.image.index.v1+json"}

    with pytest.raises(PullFailed, match="unsupported media type"):
        Index((inner,)).choose("arm64")


def test_a_configuration_says_how_the_image_is_started() -> None:
    document = {
        "os": "linux", "architecture": "arm64",
        "config": {"Entrypoint": ["/bin/run"], "Cmd": ["-v"], "Env": ["A=1=2", "B=", "=x"], "WorkingDir": "srv/app",
                   "User": "1000:app"},
    }  # fmt: skip

    config = parse_config(json.dumps(document).encode(), "arm64")

    assert (config.entrypoint, config.cmd) == (("/bin/run",), ("-v",))
    assert config.env == {"A": "1=2", "B": ""}
    assert (config.workdir, config.user) == ("/srv/app", "1000:app")


@pytest.mark.parametrize("config", [None, {}, {"Entrypoint": None, "Cmd": None, "Env": None, "WorkingDir": ""}])
def test_a_configuration_may_say_nothing(config: object) -> None:
    found = parse_config(json.dumps({"config": config}).encode(), "arm64")

    assert (found.entrypoint, found.cmd, found.env, found.workdir, found.user) == ((), (), {}, "/", "")


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"architecture": "amd64", "os": "linux"}, "is for linux/amd64; this machine is linux/arm64"),
        ({"architecture": "arm64", "os": "windows"}, "is for windows/arm64"),
        ({"config": {"Cmd": "sh"}}, "Cmd is not a list"),
        ({"config": {"Cmd": ["a\0b"]}}, "Cmd is not a text"),
        ({"config": {"Cmd": ["\ud800"]}}, "Cmd is not a text"),
        ({"config": {"Env": ["A=1"] * 1001}}, "Env is not a list of at most"),
        ({"config": {"Env": ["A=" + "x" * 100_000] * 2}}, "Env is too long"),
        ({"config": {"WorkingDir": "/a/../../b"}}, "no usable path"),
        ({"config": {"WorkingDir": "/" + "a" * 5000}}, "no usable path"),
        ({"config": {"User": 1000}}, "User is not a text"),
        ({"config": [1]}, "not an object"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(document: dict[str, Any], why: str) -> None:
    with pytest.raises(PullFailed, match=why):
        parse_config(json.dumps(document).encode(), "arm64")
