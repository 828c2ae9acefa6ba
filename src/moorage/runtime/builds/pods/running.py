"""The Job of one build: from its creation to its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from moorage.core.kit.records import dataclass
from moorage.runtime.builds.pods import manifests
from moorage.runtime.builds.pods.session import PodLost
from moorage.runtime.builds.ports import BuildFailed
from moorage.runtime.engines.kubernetes import manifests as engine_manifests
from moorage.runtime.engines.kubernetes import names, observing
from moorage.runtime.engines.kubernetes.client import Cluster, ClusterError
from moorage.runtime.engines.kubernetes.manifests import BuildSpec, Manifest, Placement
from moorage.runtime.engines.kubernetes.objects import MANAGED, Objects, owned
from moorage.runtime.engines.kubernetes.observing import Trouble
from moorage.runtime.engines.kubernetes.options import Options

POLL_S = 0.3
NO_POD_POLL_S = 1.0
SAID_AFTER_S = 0.5  # A cause that passes at once is not logged.
NO_POD_S = 3.0  # A Job does not say why it has no pod; a trial does.
DELETE_GRACE_S = 1
BUILDS = f"{MANAGED},{names.KIND}=build"
TAKEN_OVER = "the build was ended: its Job was deleted, as another process of the platform does that takes it over"

Say = Callable[[str], None]


@dataclass(frozen=True)
class BuildJob:
    """A Job whose program runs."""

    cluster: Cluster
    job: Manifest
    host: str

    async def check(self) -> None:
        """Raise PodLost or BuildFailed if the pod has ended; nothing is known while the API server is away."""
        with contextlib.suppress(ClusterError):
            pod = await _find_pod(self.cluster, self.job)
            if pod is None or observing.is_leaving(pod):
                await _check_job(self.cluster, self.job)
                raise PodLost("its pod was deleted")
            if observing.has_ended(pod):
                _explain_end(self.job, pod)


@contextlib.asynccontextmanager
async def started(cluster: Cluster, options: Options, spec: BuildSpec, say: Say) -> AsyncIterator[BuildJob]:
    """Start a build and wait until its program runs; delete it afterwards. Raises BuildFailed and PodLost."""
    try:
        await delete_all(cluster, f"{BUILDS},{names.OWNER}={spec.owner}")
        objects = Objects(cluster, options)
        namespace = await objects.ensure_organization(engine_manifests.pod_files(spec).org_id)
        place = Placement(namespace=namespace, pull_secret=options.pull_secret, drain_s=0)
        secret = engine_manifests.secret(spec, place)
        await cluster.apply(secret)
        try:
            job = await cluster.apply(manifests.job(spec, place))
            await cluster.apply(owned(secret, job))
            host = await _until_running(cluster, options, job, say)
            yield BuildJob(cluster, job, host)
        finally:
            await asyncio.shield(asyncio.ensure_future(_clear_up(cluster, spec.key, secret)))
    except ClusterError as error:
        raise BuildFailed(f"the build cannot be started: {error}") from error


async def delete_all(cluster: Cluster, selector: str) -> None:
    """Delete the Jobs of builds, with their pods and Secrets. Safe to repeat."""
    jobs, _ = await cluster.list_all("Job", selector)
    for job in jobs:
        await _delete(cluster, job["metadata"]["namespace"], job["metadata"]["name"])


async def _delete(cluster: Cluster, namespace: str, name: str) -> None:
    await cluster.delete("Job", name, namespace)
    pods, _ = await cluster.list_all("Pod", f"{BUILDS},{names.KEY}={name}", namespace)
    for pod in pods:
        await cluster.delete("Pod", pod["metadata"]["name"], namespace, grace_s=DELETE_GRACE_S)


async def _clear_up(cluster: Cluster, name: str, secret: Manifest) -> None:
    """Delete a build; where the API server is away, its agent ends by itself and the Job after it."""
    with contextlib.suppress(ClusterError):
        meta = secret["metadata"]
        await _delete(cluster, meta["namespace"], name)
        await cluster.delete("Secret", meta["name"], meta["namespace"])


async def _until_running(cluster: Cluster, options: Options, job: Manifest, say: Say) -> str:
    """Return the address of the pod; a cause that may pass has some time to pass."""
    loop = asyncio.get_running_loop()
    began, troubled_at, is_said = loop.time(), 0.0, False
    while loop.time() - began < options.start_timeout_s:
        pod = await _find_pod(cluster, job)
        if pod is not None:
            trouble = observing.find_trouble(job, pod)
            if trouble is None and "running" in observing.container_of(pod).get("state", {}):
                return str(pod["status"]["podIP"])
            if trouble is None and observing.has_ended(pod):
                _explain_end(job, pod)
        else:
            await _check_job(cluster, job)
            trouble = await _find_refusal(cluster, job) if loop.time() - began > NO_POD_S else None
        if trouble is None:
            troubled_at = 0.0
        else:
            troubled_at = troubled_at or loop.time()
            if trouble.is_final or loop.time() - troubled_at > options.patience_s:
                raise BuildFailed(f"the build cannot be started: {trouble.text}")
            if not is_said and loop.time() - troubled_at > SAID_AFTER_S:
                say(f"waiting for the cluster: {trouble.text}")
                is_said = True
        await asyncio.sleep(POLL_S if pod is not None else NO_POD_POLL_S)
    raise BuildFailed("the build cannot be started: its pod did not start in time")


async def _check_job(cluster: Cluster, job: Manifest) -> None:
    """Raise BuildFailed if a Job is gone: a node that is lost takes pods with it, but no Jobs.

    A process that lost the lease of its job, and lives, would otherwise delete the Job of its successor.
    """
    meta = job["metadata"]
    jobs, _ = await cluster.list_all("Job", f"{BUILDS},{names.KEY}={meta['name']}", meta["namespace"])
    if not [each for each in jobs if each["metadata"]["uid"] == meta["uid"] and not observing.is_leaving(each)]:
        raise BuildFailed(TAKEN_OVER)


async def _find_refusal(cluster: Cluster, job: Manifest) -> Trouble | None:
    """Return why a Job has no pod, by a dry run. It may pass: a new namespace has no service account at first."""
    try:
        await cluster.create(manifests.trial_pod(job), is_dry=True)
    except ClusterError as error:
        return Trouble(str(error), is_final=False)
    return None


async def _find_pod(cluster: Cluster, job: Manifest) -> Manifest | None:
    meta = job["metadata"]
    pods, _ = await cluster.list_all("Pod", f"{BUILDS},{names.KEY}={meta['name']}", meta["namespace"])
    return observing.newest(pods)


def _explain_end(job: Manifest, pod: Manifest) -> None:
    """Raise BuildFailed where the build itself ended its pod, else PodLost."""
    ended = observing.ended_of(pod)
    reason = observing.reason_of(job, pod, ended) or "its agent ended"
    is_deadline = pod.get("status", {}).get("reason") == "DeadlineExceeded"
    if is_deadline or ended.get("reason") == "OOMKilled":
        raise BuildFailed(f"the build was ended: {reason}")
    raise PodLost(reason)
