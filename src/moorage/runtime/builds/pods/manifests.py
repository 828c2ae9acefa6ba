"""Manifests of a build: its Job. A pure function, like all manifests of the engine."""

from __future__ import annotations

from moorage.runtime.engines.kubernetes import manifests
from moorage.runtime.engines.kubernetes.manifests import BuildSpec, Manifest, Placement
from moorage.runtime.sandbox.runs.job import WORK

DATA = "/var/lib/moorage"
KEPT_S = 300  # Kubernetes deletes the Job of a build that the platform has forgotten this long after its end.


def job(spec: BuildSpec, place: Placement) -> Manifest:
    """Return the Job of a build: never retried by Kubernetes, because the platform starts a lost one again.

    `restricted` passes the Pod Security Standard of that name: the pod itself is the sandbox. The commands of a
    Dockerfile run as root of an image, which needs mounts and user namespaces: a privileged pod in which each command
    has a sandbox, as on one machine.
    """
    made = manifests.job(spec, place)
    made["spec"]["ttlSecondsAfterFinished"] = KEPT_S
    pod = made["spec"]["template"]["spec"]
    container = pod["containers"][0]
    space = f"{spec.space_gb}Gi"
    pod["volumes"] = [{"name": name, "emptyDir": {"sizeLimit": space}} for name in ("data", "work")]
    container["volumeMounts"] = [{"name": "data", "mountPath": DATA}, {"name": "work", "mountPath": WORK}]
    container["resources"]["limits"]["ephemeral-storage"] = f"{2 * spec.space_gb}Gi"
    container["resources"]["requests"]["ephemeral-storage"] = "1Gi"
    if spec.security == "privileged":
        del pod["securityContext"]
        container["securityContext"] = {"privileged": True}
    return made


def trial_pod(made: Manifest) -> Manifest:
    """Return the pod that the Job would create, to find out why there is none."""
    template, meta = made["spec"]["template"], made["metadata"]
    own = {**template["metadata"], "name": f"{meta['name']}-trial", "namespace": meta["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": template["spec"]}
