"""A Docker daemon with its own folders, to compare builds with."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_S = 60
# The client of the daemon's package: another one, earlier in PATH, may lack the component that builds.
CLIENT_PATH = "/usr/bin:/bin"


@dataclass(frozen=True)
class Docker:
    socket: Path

    def run(self, *argv: str, input_: bytes | None = None) -> bytes:
        env = {**os.environ, "DOCKER_BUILDKIT": "1", "DOCKER_CONFIG": str(self.socket.parent / "config")}
        client = shutil.which("docker", path=CLIENT_PATH) or "docker"
        command = [client, "-H", f"unix://{self.socket}", *argv]
        done = subprocess.run(command, input=input_, capture_output=True, check=False, env=env)
        assert done.returncode == 0, f"docker {' '.join(argv[:3])}: {done.stderr.decode()[-3000:]}"
        return done.stdout

    def build(self, context: Path, dockerfile: Path, args: Mapping[str, str], target: str, *more: str) -> str:
        """Build an image; return its id."""
        chosen = ["--target", target] if target else []
        given = [word for name, value in args.items() for word in ("--build-arg", f"{name}={value}")]
        argv = ["build", "-q", "--network=host", "-f", str(dockerfile), *chosen, *given, *more, str(context)]
        return self.run(*argv).decode().strip()

    def config(self, image: str) -> dict[str, Any]:
        [found] = json.loads(self.run("image", "inspect", image))
        config: dict[str, Any] = found["Config"]
        return config

    def layers(self, image: str) -> list[bytes]:
        """Return the layers of an image, lowest first."""
        with tarfile.open(fileobj=io.BytesIO(self.run("save", image))) as saved:
            [manifest] = json.loads(saved.extractfile("manifest.json").read())  # type: ignore[union-attr]
            return [saved.extractfile(name).read() for name in manifest["Layers"]]  # type: ignore[union-attr]


@contextmanager
def running_docker(folder: Path) -> Iterator[Docker]:
    """Start a daemon whose files are all below a folder, and stop it by its process id."""
    program = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert program, "the comparison needs the program dockerd, of the Debian package docker.io"
    socket = folder / "docker.sock"
    argv = [
        program, "--data-root", str(folder / "data"), "--exec-root", str(folder / "run"), "-H", f"unix://{socket}",
        "--pidfile", str(folder / "pid"), "--iptables=false", "--bridge=none", "--ip-forward=false",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
    try:
        docker = Docker(socket)
        _wait(docker, daemon, folder / "log")
        yield docker
    finally:
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _wait(docker: Docker, daemon: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and daemon.poll() is None:
        try:
            docker.run("version")
        except AssertionError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"dockerd did not start: {log.read_text()[-2000:]}")
