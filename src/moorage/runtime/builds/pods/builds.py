"""Builds of a cluster: each is a Job in a namespace of its organization.

The repository is fetched here, because the credentials of the code host stay with the platform.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.kit import folders
from moorage.core.kit.records import dataclass
from moorage.core.net import pod_identity
from moorage.runtime.builds.detection import preview
from moorage.runtime.builds.dockerfiles import building as image_builds
from moorage.runtime.builds.pods import running, sources, wire
from moorage.runtime.builds.pods.manifests import DATA
from moorage.runtime.builds.pods.results import Results
from moorage.runtime.builds.pods.session import PodLost, Session
from moorage.runtime.builds.pods.wire import Account, Order
from moorage.runtime.builds.ports import BuildFailed, BuildRequest, Plan, Sink, Source, StoredBuild
from moorage.runtime.engines.kubernetes import names
from moorage.runtime.engines.kubernetes.client import Cluster, ClusterError
from moorage.runtime.engines.kubernetes.manifests import BuildSecurity, BuildSpec, PodFiles
from moorage.runtime.engines.kubernetes.options import Options
from moorage.runtime.images import machine, references
from moorage.runtime.images.dockerfile import instructions as ins
from moorage.runtime.images.dockerfile.stages import Dockerfile
from moorage.runtime.images.sources import Sources
from moorage.runtime.sandbox.heavy import HeavyWork
from moorage.runtime.workers import toolchain
from moorage.settings import Settings

ATTEMPTS = 3  # A pod may be lost with its node.
AGENT = ["python3", "-m", "moorage.platform.pods.build"]
AGENT_MEMORY_MB = 256  # beside the memory of the build
START_S = 300  # for the source, the result and the start of the agent, beside the time of the build
CPUS = 2.0
OFF = (
    "this platform builds no Dockerfiles: MOORAGE_KUBERNETES_DOCKERFILES is off. Deploy a ready image, or a repository "
    "without a Dockerfile"
)
# Settings that builds read. The pod has no other setting of the platform, and none of its keys.
PASSED_ON = (
    "allow_private_targets", "build_memory_mb", "build_minutes", "disk_reserve_mb", "image_files", "images_gb",
    "registry_mirrors", "sandbox_allow", "sandbox_block",
)  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """A fetched repository, and how it is built."""

    plan: Plan
    security: BuildSecurity
    order: bytes
    archive: Path


@dataclass(frozen=True)
class ClusterBuilds:
    """The port `Builds`. `connect` opens a client of the cluster, and `image_options` are those of Dockerfiles."""

    settings: Settings
    connect: Callable[[], Cluster]
    options: Options
    image_options: Options
    sources: Sources
    results: Results
    work: HeavyWork  # detects plans
    attempts: int = ATTEMPTS

    def with_releases(self, releases: Unpacked) -> ClusterBuilds:
        """Return builds with other folders for their results."""
        return replace(self, results=replace(self.results, releases_of=lambda _: releases))

    async def build(self, request: BuildRequest, source: Source, sink: Sink) -> StoredBuild:
        scratch = self.settings.folder("builds") / secrets.token_hex(8)
        try:
            prepared = await self._prepare(request, source, scratch)
            cluster = self.connect()
            try:
                return await self._run_until_kept(cluster, request, prepared, source, sink, scratch)
            finally:
                await cluster.close()
        finally:
            await asyncio.to_thread(folders.remove, scratch)

    async def clear_up(self) -> None:
        """Delete files and Jobs of an earlier process of this host name; other Jobs end by themselves."""
        root = self.settings.folder("builds")
        for folder in list(root.iterdir()) if root.is_dir() else []:
            await asyncio.to_thread(folders.remove, folder)
        cluster = self.connect()
        try:
            await running.delete_all(cluster, f"{running.BUILDS},{names.MACHINE}={this_machine()}")
        except ClusterError:
            return  # The engine of apps reports a cluster that does not answer.
        finally:
            await cluster.close()

    async def _prepare(self, request: BuildRequest, source: Source, scratch: Path) -> Prepared:
        folder, archive = scratch / "source", scratch / "source.tar"
        await asyncio.to_thread(folder.mkdir, parents=True, mode=0o700)
        await source.fetch(folder)
        here = replace(request, source=folder)
        base, plan = await preview.plan_of(self.work, here)
        accounts: list[Account] = []
        security: BuildSecurity = "restricted"
        if plan.language == "docker":
            if self.settings.kubernetes_dockerfiles == "off":
                raise BuildFailed(OFF)
            security = "privileged"
            read = await asyncio.to_thread(image_builds.read, here, base)
            accounts = await self._accounts(request, read.file)
        await asyncio.to_thread(sources.pack, folder, archive)
        await asyncio.to_thread(folders.remove, folder)
        order = Order(request, accounts, await asyncio.to_thread(self._authorities))
        return Prepared(plan, security, wire.encode(order), archive)

    async def _accounts(self, request: BuildRequest, file: Dockerfile) -> list[Account]:
        """Return the organization's accounts at the registries that a Dockerfile names, and no others."""
        if not request.image.has_credentials:
            return []
        credentials = [await self.sources.credentials(request.image.org_id, each) for each in registries_of(file)]
        return [Account(each.registry, each.username, each.secret, each.token_host) for each in credentials if each]

    def _authorities(self) -> str:
        return Path(self.settings.extra_ca).read_text() if self.settings.extra_ca else ""

    async def _run_until_kept(
        self, cluster: Cluster, request: BuildRequest, prepared: Prepared, source: Source, sink: Sink, scratch: Path
    ) -> StoredBuild:
        """Build in a pod, and again in another one if it is lost."""

        def say(line: str) -> None:
            sink.write("system", f"{line}\n")

        for attempt in range(1, self.attempts + 1):
            try:
                return await self._run(cluster, request, prepared, source, sink, say, scratch)
            except PodLost as lost:
                if attempt == self.attempts:
                    raise BuildFailed(f"the build was lost {attempt} times: {lost}") from lost
                say(f"the build was lost: {lost}; it starts again")
        raise AssertionError("unreachable")

    async def _run(
        self,
        cluster: Cluster,
        request: BuildRequest,
        prepared: Prepared,
        source: Source,
        sink: Sink,
        say: Callable[[str], None],
        scratch: Path,
    ) -> StoredBuild:
        identity, token = wire.make_identity(), secrets.token_hex(32)
        options = self.options if prepared.security == "restricted" else self.image_options
        spec = self._spec(request, prepared.security, token, identity.chain)
        async with running.started(cluster, options, spec, say) as job:
            session = Session(job.host, token, pod_identity.client_context(identity.authority), job.check)
            await session.begin(prepared.order, prepared.archive)
            last = await session.follow(sink)
            return await self.results.take(request, prepared.plan, source, session, last, scratch)

    def _spec(self, request: BuildRequest, security: BuildSecurity, token: str, chain: str) -> BuildSpec:
        settings, owner = self.settings, re.sub("[^a-z0-9-]", "-", request.image.owner)
        return BuildSpec(
            key=f"build-{owner[-40:]}-{secrets.token_hex(4)}",
            token=token,
            owner=owner[-60:],
            machine=this_machine(),
            argv=AGENT,
            env={
                **settings_of(settings),
                **toolchain.operator_environment(),
                "MOORAGE_DATA": DATA,
                "MOORAGE_BUILDS": "1",
                "HOME": DATA,
                "HOST": "0.0.0.0",  # noqa: S104 - the address of the pod
                wire.TOKEN_VARIABLE: token,
                wire.CERTIFICATE_VARIABLE: chain,
                wire.SANDBOX_VARIABLE: "" if security == "restricted" else "1",
            },
            files=PodFiles(
                org_id=request.image.org_id,
                image=settings.kubernetes_build_image,
                architecture=machine.architecture(),
            ),
            log="builds",
            cpu=CPUS,
            memory_mb=settings.build_memory_mb + AGENT_MEMORY_MB,
            timeout_s=settings.build_minutes * 60 + START_S,
            security=security,
        )


def settings_of(settings: Settings) -> dict[str, str]:
    """Return the variables of the settings that builds read, as the operator gave them."""
    variables = {}
    for name in PASSED_ON:
        value = getattr(settings, name)
        if name == "allow_private_targets" and value is None:
            value = None if not settings.is_production else False
        if isinstance(value, bool):
            value = int(value)
        if value not in (None, ()):
            variables[f"MOORAGE_{name.upper()}"] = ",".join(value) if isinstance(value, tuple) else str(value)
    return variables


def registries_of(file: Dockerfile) -> list[str]:
    """Return the registries of all images that a Dockerfile may pull."""
    return sorted({registry for name in _images_of(file) if (registry := _registry_of(name))})


def _images_of(file: Dockerfile) -> Iterator[str]:
    for stage in file.stages:
        yield stage.base
        for each in stage.instructions:
            if isinstance(each, ins.Copy) and each.from_:
                yield each.from_


def _registry_of(name: str) -> str:
    try:
        return references.parse(name).registry
    except ValueError:
        return ""  # A stage, or a variable.


def this_machine() -> str:
    """Return the host name as a label: the name of the pod, which stays for a pod of a StatefulSet."""
    return re.sub("[^a-z0-9-]", "-", socket.gethostname().lower())[:60].strip("-") or "platform"
