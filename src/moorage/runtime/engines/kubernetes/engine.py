"""Makes the engine of a cluster. Only its import loads the client of Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from moorage.runtime.engines.kubernetes.client import Cluster
from moorage.runtime.engines.kubernetes.commands import KubernetesCommands
from moorage.runtime.engines.kubernetes.filling.pods import VolumeFiller
from moorage.runtime.engines.kubernetes.following import OpenLog
from moorage.runtime.engines.kubernetes.manifests import Manifest
from moorage.runtime.engines.kubernetes.metrics import KubernetesMetrics
from moorage.runtime.engines.kubernetes.options import Options
from moorage.runtime.engines.kubernetes.replicas import KubernetesReplicas
from moorage.runtime.engines.kubernetes.servers.agents import KubernetesAgents
from moorage.runtime.engines.kubernetes.volumes import KubernetesVolumes, MachineVolumes
from moorage.runtime.engines.ports import Engine, Logs


class MachineFolders(NamedTuple):
    """Volumes of one machine, and the folder with them."""

    volumes: MachineVolumes
    folders: Path


def make_engine(
    cluster: Cluster, options: Options, logs: Logs, open_log: OpenLog, machine: MachineFolders | None = None
) -> Engine:
    """Return all ports. The engine closes the client, and copies the output of pods into `logs`.

    `machine` are the volumes that apps had before the platform moved into the cluster.
    """
    filler = VolumeFiller(cluster, options, logs, machine.folders) if machine is not None else None
    replicas = KubernetesReplicas(cluster, options, logs, open_log, filler.fill if filler else None)

    async def used_bytes(claim: Manifest) -> int:
        pod = replicas.pod_with_claim(claim["metadata"]["namespace"], claim["metadata"]["name"])
        return (await replicas.summaries.of(pod)).disk_bytes if pod else 0

    volumes = KubernetesVolumes(cluster, replicas.objects, options, used_bytes, machine.volumes if machine else None)
    return Engine(
        workloads=replicas,
        logs=logs,
        metrics=KubernetesMetrics(replicas.summaries, replicas.pod_of),
        volumes=volumes,
        commands=KubernetesCommands(cluster, replicas.objects),
        agents=KubernetesAgents(cluster, options, volumes) if options.agent_image else None,
    )
