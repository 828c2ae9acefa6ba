"""A real S3 server for the tests, from a wheel: no Docker, no account."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_port

from moorage.core.artifacts.objects import ArtifactsUnavailable, Objects
from moorage.settings import Settings

SERVICES = ("master", "volume", "filer", "s3")


@dataclass(frozen=True)
class S3Server:
    endpoint: str
    access_key: str
    secret_key: str

    def settings(self, data: Path, **fields: object) -> Settings:
        """Settings with artifacts in a folder of the bucket that only one test uses."""
        options = {
            "data": data,
            "artifacts_url": f"s3://moorage/{secrets.token_hex(8)}/blobs",
            "artifacts_endpoint": self.endpoint,
            "artifacts_access_key": self.access_key,
            "artifacts_secret_key": self.secret_key,
            **fields,
        }
        return Settings(_env_file=None, **options)


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """Start a server on loopback ports with its own folder, and stop it."""
    folder = Path(tempfile.mkdtemp(prefix="moorage-s3-"))
    ports = {f"{service}.port{kind}": free_port() for service in SERVICES for kind in ("", ".grpc")}
    server = S3Server(f"http://127.0.0.1:{ports['s3.port']}", "harbor", secrets.token_hex(16))
    process = subprocess.Popen(
        _argv(folder, server, ports),
        cwd=folder,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log").open("wb"),
    )
    try:
        _wait(server, folder, process)
        yield server
    finally:
        process.kill()  # On SIGTERM it waits for ever for components that have already exited.
        process.wait()
        for port in ports.values():
            for left in Path(tempfile.gettempdir()).glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def _argv(folder: Path, server: S3Server, ports: dict[str, int]) -> list[str]:
    credentials = [{"accessKey": server.access_key, "secretKey": server.secret_key}]
    identity = {"name": "moorage", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    return [
        str(Path(sysconfig.get_path("scripts")) / "weed"),
        "server",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=1024",
        "-volume.max=20",
        "-filer",
        f"-filer.localSocket={folder / 'filer.sock'}",
        "-s3",
        f"-s3.config={config}",
        f"-s3.localSocket={folder / 's3.sock'}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]


def _wait(server: S3Server, folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server can store objects; the first object also creates the bucket."""
    objects = Objects(server.settings(folder))
    deadline = time.monotonic() + 60
    while True:
        try:
            return objects.put("ready", b"yes", 3)
        except ArtifactsUnavailable:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
