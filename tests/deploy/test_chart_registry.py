"""The registry of the chart: a real one, started with the variables of its pod, on a real S3 server."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.core.artifacts.s3_server import running_s3
from tests.deploy.rendering import rendering
from tests.ports import free_port
from tests.runtime.workers.invoker_support import until

from moorage.gateway.caddy import find_caddy

pytestmark = pytest.mark.group("s3")

BLOB = b"a layer of an image"
DIGEST = f"sha256:{hashlib.sha256(BLOB).hexdigest()}"
ACCOUNT = "Basic " + base64.b64encode(b"platform:the password").decode()


def pod_of(endpoint: str) -> dict[str, Any]:
    values = {
        "registry": {"secret": "account", "bundled": {"enabled": True}},
        "artifacts": {"url": "s3://moorage/artifacts", "endpoint": endpoint, "secret": "bucket"},
    }
    with rendering() as renderer:
        (deployment,) = [
            item
            for item in renderer.render(values)
            if (item["kind"], item["metadata"]["name"]) == ("Deployment", "harbor-registry")
        ]
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return pod


def variables_of(pod: dict[str, Any], secrets: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the variables of the pod, with values of Secrets."""
    found = {}
    for item in pod["containers"][0]["env"]:
        reference = item.get("valueFrom", {}).get("secretKeyRef")
        found[item["name"]] = secrets[reference["name"]][reference["key"]] if reference else item["value"]
    return found


@contextmanager
def registry(folder: Path, variables: dict[str, str]) -> Iterator[int]:
    program = shutil.which("docker-registry", path=f"{os.environ['PATH']}:{sys.prefix}/debian/usr/bin")
    assert program, "the tests need the program docker-registry, of the Debian package of the same name"
    port = free_port()
    (folder / "config.yml").write_text("version: 0.1\nhttp: {addr: none}\nstorage: {}\n")
    env = variables | {"REGISTRY_HTTP_ADDR": f"127.0.0.1:{port}"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "serve", str(folder / "config.yml")], env=env, stdout=log, stderr=log)
    try:
        until(lambda: answers(port))
        yield port
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    try:
        call(port, "GET", "/v2/")
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def call(port: int, method: str, path: str, body: bytes | None = None, account: str = "") -> Any:
    url = path if path.startswith("http") else f"http://127.0.0.1:{port}{path}"
    headers = {"Content-Type": "application/octet-stream"} | ({"Authorization": account} if account else {})
    return urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=30)


def account_file(folder: Path) -> Path:
    argv = [str(find_caddy()), "hash-password", "--plaintext", "the password"]
    hashed = subprocess.run(argv, check=True, capture_output=True, text=True, env={"HOME": str(folder)}).stdout
    (folder / "htpasswd").write_text(f"platform:{hashed}")
    return folder / "htpasswd"


def stored(folder: Path, variables: dict[str, str]) -> bytes:
    """Push a blob to one registry, and return what another one has."""
    with registry(folder, variables) as port:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            call(port, "POST", "/v2/org/app/blobs/uploads/", b"")
        upload = call(port, "POST", "/v2/org/app/blobs/uploads/", b"", ACCOUNT).headers["Location"]
        assert call(port, "PUT", f"{upload}&digest={DIGEST}", BLOB, ACCOUNT).status == 201
    with registry(folder, variables) as port:
        answer = call(port, "GET", f"/v2/org/app/blobs/{DIGEST}", None, ACCOUNT)
        assert answer.url.startswith(f"http://127.0.0.1:{port}/"), "nodes are not sent to the bucket"
        body: bytes = answer.read()
    return body


def test_a_pushed_layer_is_in_the_bucket_and_only_the_account_gets_it(tmp_path: Path) -> None:
    with running_s3() as server:
        pod = pod_of(server.endpoint)
        keys = {"access-key": server.access_key, "secret-key": server.secret_key}
        variables = variables_of(pod, {"account": {"http-secret": "of all replicas"}, "bucket": keys})
        assert variables["REGISTRY_AUTH_HTPASSWD_PATH"] == "/account/htpasswd"
        variables["REGISTRY_AUTH_HTPASSWD_PATH"] = str(account_file(tmp_path))

        body = stored(tmp_path, variables)

    assert body == BLOB
    assert variables["REGISTRY_STORAGE_S3_BUCKET"] == "moorage"
    mounts = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts == {"/account", "/tmp"}
