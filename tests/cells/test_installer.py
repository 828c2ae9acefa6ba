"""Installing what functions depend on: real pip and npm in the sandbox, and small package indexes of this machine."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.cells.invoker_support import CANARY, MODES, give, path_of, python_of, user_of
from tests.sandbox.sandbox_support import outside_address

pytestmark = pytest.mark.xdist_group("cells-installer")

# Installs as the control process does, as whatever user this runs, and prints what came of it.
DRIVER = """
import asyncio, json, sys
from pathlib import Path
from moorage.cells.runtimes import resolve
from moorage.functions import installer
from moorage.functions.failures import InstallFailed
from moorage.settings import Settings

data, allow, folder, language, timeout_s = sys.argv[1:]
installer.TIMEOUT_S = float(timeout_s)

async def install():
    settings = Settings(_env_file=None, data=Path(data), sandbox_allow=(allow,))
    try:
        await installer.SandboxInstaller(settings).install(Path(folder), resolve(language))
    except InstallFailed as failed:
        return failed.tail

print(json.dumps(asyncio.run(install())))
"""


@dataclass
class Index:
    """A package index for both languages, on an address that sandboxes may reach when the operator allows it."""

    address: str
    port: int = 0
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PIP_INDEX_URL": f"{self.url}/simple",
            "PIP_TRUSTED_HOST": self.address,
            "npm_config_registry": f"{self.url}/npm/",
        }

    def add_python(self, name: str, *files: tuple[str, bytes]) -> None:
        links = "".join(f'<a href="/files/{file}">{file}</a>' for file, _ in files)
        self.files[f"/simple/{name}/"] = ("text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode())
        self.files |= {f"/files/{file}": ("application/octet-stream", body) for file, body in files}

    def add_node(self, name: str, tarball: bytes) -> None:
        version = {
            "name": name,
            "version": "1.0.0",
            "dist": {"tarball": self.tarball(name), "integrity": digest(tarball)},
        }
        packument = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        self.files[f"/npm/{name}"] = ("application/json", json.dumps(packument).encode())
        self.files[f"/npm/{name}/-/{name}-1.0.0.tgz"] = ("application/octet-stream", tarball)

    def tarball(self, name: str) -> str:
        return f"{self.url}/npm/{name}/-/{name}-1.0.0.tgz"


def digest(data: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


def wheel(name: str, code: str) -> tuple[str, bytes]:
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return f"{name}-1.0-py3-none-any.whl", body.getvalue()


def tar(files: dict[str, str]) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return body.getvalue()


NODE_PACKAGE = tar(
    {
        "package/package.json": json.dumps({"name": "harbor", "version": "1.0.0", "main": "index.js"}),
        "package/index.js": "module.exports = 'a boat'\n",
    }
)


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    index = Index(outside_address())

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            index.requests.append(path)
            if path.startswith("/simple/stalled"):
                index.closing.wait()
            kind, body = index.files.get(path, ("", b""))
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", kind or "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):  # Some have lost patience by then.
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer((index.address, 0), Answer)
    server.daemon_threads = True
    index.port = server.server_address[1]
    index.add_python("harbor", wheel("harbor", "boat = 'a boat'\n"))
    index.add_python("sources", ("sources-1.0.tar.gz", tar({"sources-1.0/setup.py": "raise SystemExit('it ran')"})))
    index.add_node("harbor", NODE_PACKAGE)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield index
    index.closing.set()
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Deployment:
    """A platform's data folder, and packages that are deployed to it by one user."""

    mode: str
    index: Index
    data: Path
    count: int = 0

    def install(self, files: dict[str, Any], language: str, timeout_s: float = 60.0) -> tuple[Path, str | None]:
        """Install into a fresh package; return it, and why that failed."""
        self.count += 1
        folder = self.data / f"package-{self.count}"
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
        give(folder, self.mode)
        arguments = [str(self.data), self.index.address, str(folder), language, str(timeout_s)]
        done = subprocess.run(
            [python_of(self.mode), "-c", DRIVER, *arguments],
            env={
                "PATH": os.environ["PATH"],
                "MOORAGE_VAULT_KEY": CANARY,
                **path_of(self.mode),
                **self.index.environment,
            },
            capture_output=True,
            text=True,
            cwd="/",
            timeout=120,
            check=False,
            **user_of(self.mode),
        )
        assert done.returncode == 0, done.stderr
        failure: str | None = json.loads(done.stdout)
        return folder, failure

    def asked_for(self, name: str) -> int:
        return sum(name in request for request in self.index.requests)


@contextlib.contextmanager
def deploying(mode: str, index: Index) -> Iterator[Deployment]:
    with tempfile.TemporaryDirectory(prefix="install-") as folder:
        Path(folder).chmod(0o755)
        give(Path(folder), mode)
        yield Deployment(mode, index, Path(folder))


@pytest.fixture(params=MODES)
def deployment(request: pytest.FixtureRequest, index: Index) -> Iterator[Deployment]:
    """As root and as an ordinary user."""
    with deploying(request.param, index) as made:
        yield made


@pytest.fixture
def own_deployment(index: Index) -> Iterator[Deployment]:
    """As the user who runs the tests: for what is the same for all."""
    with deploying(MODES[0], index) as made:
        yield made


def node_files(index: Index, **changed: Any) -> dict[str, Any]:
    package = {"name": "mine", "version": "1.0.0", "dependencies": {"harbor": "1.0.0"}, **changed}
    locked = {"version": "1.0.0", "resolved": index.tarball("harbor"), "integrity": digest(NODE_PACKAGE)}
    lock = {
        "name": "mine",
        "version": "1.0.0",
        "lockfileVersion": 3,
        "packages": {"": package, "node_modules/harbor": locked},
    }
    return {"package.json": package, "package-lock.json": lock}


# Python.


def test_a_wheel_is_installed_and_can_be_imported(deployment: Deployment) -> None:
    folder, failure = deployment.install({"requirements.txt": "harbor==1.0\n"}, "python")

    code = "import harbor; print(harbor.boat)"
    printed = subprocess.run(
        [python_of(deployment.mode), "-I", "-c", f"import sys; sys.path.append({str(folder / 'packages')!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
        **user_of(deployment.mode),
    ).stdout
    assert failure is None
    assert printed == "a boat\n"
    owners = {path.stat().st_uid for path in (folder, *folder.rglob("*"))}
    assert owners == {os.stat(deployment.data).st_uid}


def test_pinned_dependencies_are_installed_once_and_then_kept(deployment: Deployment, index: Index) -> None:
    files = {"requirements.txt": "harbor==1.0  # for boats\n"}
    deployment.install(files, "python")
    before = len(index.requests)

    again, failure = deployment.install(files, "python")

    assert failure is None
    assert (again / "packages" / "harbor" / "__init__.py").read_text() == "boat = 'a boat'\n"
    assert len(index.requests) == before


def test_what_is_not_pinned_is_looked_up_every_time(own_deployment: Deployment) -> None:
    files = {"requirements.txt": "harbor\n"}
    own_deployment.install(files, "python")
    before = own_deployment.asked_for("/files/harbor")

    _, failure = own_deployment.install(files, "python")

    assert failure is None
    assert own_deployment.asked_for("/files/harbor") == before + 1


def test_a_failed_install_shows_the_end_of_what_was_said_and_keeps_nothing(own_deployment: Deployment) -> None:
    files = {"requirements.txt": "not-there==1.0\n"}

    _, failure = own_deployment.install(files, "python")

    assert failure is not None
    assert "No matching distribution found for not-there==1.0" in failure
    assert "/work/" not in failure
    assert not (own_deployment.data / "build-cache").exists()


def test_sources_are_refused_and_never_run(own_deployment: Deployment) -> None:
    _, failure = own_deployment.install({"requirements.txt": "sources==1.0\n"}, "python")

    assert failure is not None
    assert "No matching distribution found" in failure
    assert "it ran" not in failure


def test_an_install_that_never_ends_is_cut_off(own_deployment: Deployment) -> None:
    folder, failure = own_deployment.install({"requirements.txt": "stalled==1.0\n"}, "python", timeout_s=1.0)

    assert failure is not None
    assert failure.endswith("(it took too long)")
    assert folder.stat().st_uid == own_deployment.data.stat().st_uid


def test_requirements_cannot_read_the_host_s_files(own_deployment: Deployment) -> None:
    (own_deployment.data / "secret.txt").write_text("harbor-secret==1.0\n")
    secret = str(own_deployment.data / "secret.txt")

    failures = [
        own_deployment.install({"requirements.txt": line}, "python")[1]
        for line in (f"-r {secret}\n", "-r /etc/shadow\n")
    ]

    assert None not in failures
    assert "harbor-secret==1.0" not in str(failures)


# Node.


def test_npm_installs_what_the_lock_file_says_once(deployment: Deployment, index: Index) -> None:
    folder, failure = deployment.install(node_files(index), "nodejs")
    before = len(index.requests)
    again, second = deployment.install(node_files(index), "nodejs")

    assert (failure, second) == (None, None)
    for each in (folder, again):
        assert (each / "node_modules" / "harbor" / "index.js").read_text() == "module.exports = 'a boat'\n"
    assert before > 0
    assert len(index.requests) == before


def test_npm_without_a_lock_file_takes_what_fits(own_deployment: Deployment, index: Index) -> None:
    folder, failure = own_deployment.install({"package.json": {"dependencies": {"harbor": "^1.0.0"}}}, "nodejs")

    assert failure is None
    assert (folder / "node_modules" / "harbor" / "index.js").is_file()


def test_a_failed_npm_says_why(own_deployment: Deployment) -> None:
    _, failure = own_deployment.install({"package.json": {"dependencies": {"not-there": "1.0.0"}}}, "nodejs")

    assert failure is not None
    assert "E404" in failure


def test_a_script_that_prints_endlessly_is_cut_off_and_its_output_is_cut(
    own_deployment: Deployment, index: Index
) -> None:
    scripts = {"preinstall": "node -e 'for(;;)console.log(\"x\".repeat(1000000))'"}

    _, failure = own_deployment.install(node_files(index, scripts=scripts), "nodejs", timeout_s=4.0)

    assert failure is not None
    assert 0 < len(failure) < 4000


def test_install_scripts_run_inside_the_sandbox(deployment: Deployment, index: Index) -> None:
    look = f"cat /etc/shadow; cat /proc/1/environ; ls -a /proc; ls {deployment.data}; exit 7"

    folder, failure = deployment.install(node_files(index, scripts={"postinstall": look}), "nodejs")

    assert failure is not None
    assert "root:" not in failure
    assert CANARY not in failure
    assert "MOORAGE" not in failure
    assert "No such file or directory" in failure
    assert folder.is_dir()


def test_pipes_and_locked_folders_that_a_script_leaves_are_no_failure_of_ours(
    deployment: Deployment, index: Index
) -> None:
    leave = "mkfifo node_modules/pipe; mkdir node_modules/shut; chmod 000 node_modules/shut"

    folder, failure = deployment.install(node_files(index, scripts={"postinstall": leave}), "nodejs")
    kept = list((deployment.data / "build-cache").glob("*/harbor"))

    assert failure is None
    assert (folder / "node_modules" / "harbor" / "index.js").is_file()
    assert kept == []
    (folder / "node_modules" / "shut").chmod(0o755)
