"""Manifests of workloads, as data: no function here connects to a cluster."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from typing import Any, Literal

from moorage.core.kit.records import dataclass
from moorage.runtime.engines.kubernetes import names
from moorage.runtime.engines.ports import AppSpec, CannotStart, ReplicaSpec, RunSpec, ServerSpec

Manifest = dict[str, Any]
BuildSecurity = Literal["restricted", "privileged"]  # A `restricted` pod cannot make the sandboxes of a Dockerfile.

APP_PORT = 8080  # value of PORT where the spec has none; each pod has an address of its own
DEFAULT_USER = 1000  # for images without a numeric user: Pod Security `restricted` forbids root
CPU_REQUEST_SHARE = 10  # A workload requests a tenth of its CPU limit, because most of them are idle.
MIN_CPU_REQUEST_M = 10
NODE_DRAIN_S = 5  # A pod still serves for this long after its deletion began, until gateways use another one.
STOP_GRACE_S = 30  # from SIGTERM to SIGKILL where Kubernetes stops a pod by itself
NODE_LOSS_S = 5  # A pod leaves a node that does not answer after this time; the default of Kubernetes is 300.
SERVER_STOP_GRACE_S = 60  # the same for a database server, which writes its memory to disk


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFiles:
    """Files of a program for this engine: an image that the nodes pull."""

    org_id: int
    image: str  # reference in a registry that the nodes reach
    user: str = ""  # USER of the image
    workdir: str = ""  # absolute path in the image, "" for the one of the image
    architecture: str = ""  # that the image is for, such as "arm64"; "" for any


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the objects of a workload belong, and what the cluster adds to them."""

    namespace: str
    claim: str | None = None  # claim of the volume at /data
    pull_secret: str = ""  # Secret of the namespace with the credentials of the registry
    drain_s: int = NODE_DRAIN_S  # 0 for no preStop hook


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSpec(RunSpec):
    """Build of a repository in a pod; only this engine has such workloads."""

    owner: str  # label; builds of one owner replace each other
    machine: str  # label
    security: BuildSecurity = "restricted"
    space_gb: int = 10  # of the files of the build


def pod_files(spec: ReplicaSpec) -> PodFiles:
    """Return the files of a program that this engine prepared."""
    if not isinstance(spec.files, PodFiles):
        raise CannotStart("it cannot be started: the Kubernetes engine runs images only")
    return spec.files


def kind_of(spec: ReplicaSpec) -> str:
    if isinstance(spec, BuildSpec):
        return "build"
    if isinstance(spec, ServerSpec):
        return "server"
    return "run" if isinstance(spec, RunSpec) else "app"


def port_of(spec: ReplicaSpec) -> int:
    """Return the port at which a workload listens at its pod's address; 0 for a run."""
    if isinstance(spec, RunSpec):
        return 0
    chosen = spec.port if isinstance(spec, ServerSpec) else spec.inside_port if isinstance(spec, AppSpec) else 0
    return chosen or APP_PORT


def labels_of(spec: ReplicaSpec, kind: str | None = None) -> dict[str, str]:
    key = names.check_label(spec.key)
    labels = {names.MANAGED_BY: names.MANAGER, names.KEY: key, names.KIND: kind or kind_of(spec)}
    if isinstance(spec, BuildSpec):
        labels |= {names.OWNER: names.check_label(spec.owner), names.MACHINE: spec.machine}
    return labels | ({names.NAME: names.check_label(spec.name)} if spec.name else {})


def annotations_of(spec: ReplicaSpec) -> dict[str, str]:
    return {
        names.TOKEN: names.digest_of(spec.token),
        names.LOG: spec.log,
        names.PORT: str(port_of(spec)),
    }


def secret(spec: ReplicaSpec, place: Placement) -> Manifest:
    """Return the immutable Secret with the variables of a workload, and the values that its log masks."""
    data = {**spec.env, names.HIDDEN: json.dumps(spec.hidden)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": names.secret_name(spec.key, spec.token, data),
            "namespace": place.namespace,
            "labels": labels_of(spec),
        },
        "type": "Opaque",
        "immutable": True,
        "data": {name: b64encode(value.encode()).decode() for name, value in sorted(data.items())},
    }


def deployment(spec: ReplicaSpec, place: Placement) -> Manifest:
    """Return the Deployment of one replica.

    Each replica row has a Deployment of its own, so the platform's release swap, drain and scaling stay in charge, and
    Kubernetes moves the pod to another node also while the control plane is away. `Recreate` never runs two pods of a
    replica at once.
    """
    labels = labels_of(spec)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(spec, place, labels),
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {names.KEY: spec.key}},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations_of(spec)},
                "spec": pod_spec(spec, place),
            },
        },
    }


def stateful_set(spec: ServerSpec, place: Placement) -> Manifest:
    """Return the StatefulSet of a database server.

    Kubernetes never runs two of its pods at once, also if a node does not answer. Its claim and its Service are not
    part of it: both outlive a stop.
    """
    labels = labels_of(spec)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _metadata(spec, place, labels),
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            "serviceName": spec.name or spec.key,
            "selector": {"matchLabels": {names.KEY: spec.key}},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations_of(spec)},
                "spec": pod_spec(spec, place),
            },
        },
    }


def service(spec: ServerSpec, place: Placement) -> Manifest:
    """Return the headless Service of a database server: its DNS name leads to the current pod.

    Pods have no probes, and clients repeat a connection that is refused, so the name also leads to a pod that starts.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.check_label(spec.name),
            "namespace": place.namespace,
            "labels": {names.MANAGED_BY: names.MANAGER, names.NAME: spec.name},
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.NAME: spec.name},
            "ports": [{"name": "app", "protocol": "TCP", "port": port_of(spec)}],
        },
    }


def job(spec: RunSpec, place: Placement) -> Manifest:
    """Return the Job of one run: never retried, and kept until the platform stored its result.

    The deadline stands at the pod: the kubelet then ends it and keeps its log, while a deadline of the Job deletes it.
    """
    labels = labels_of(spec)
    template = pod_spec(spec, place)
    if spec.timeout_s:
        template["activeDeadlineSeconds"] = spec.timeout_s
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(spec, place, labels),
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "template": {"metadata": {"labels": labels, "annotations": annotations_of(spec)}, "spec": template},
        },
    }


def command_pod(spec: ReplicaSpec, place: Placement, name: str, argv: list[str], timeout_s: int) -> Manifest:
    """Return the pod of a one-off command beside an app that does not run."""
    template = pod_spec(spec, place)
    template |= {"restartPolicy": "Never", "activeDeadlineSeconds": timeout_s}
    template["containers"][0]["command"] = escape(argv)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": place.namespace, "labels": labels_of(spec, "command")},
        "spec": template,
    }


def claim(volume: str, name: str, namespace: str, size_mb: int, storage_class: str = "", *, fill: str = "") -> Manifest:
    """Return the claim of a volume, which one pod mounts at a time; `fill` says whether it gets files of a machine."""
    spec: Manifest = {
        "accessModes": ["ReadWriteOncePod"],
        "resources": {"requests": {"storage": f"{max(1, size_mb)}Mi"}},
    }
    if storage_class:
        spec["storageClassName"] = storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": names.check_label(name),
            "namespace": namespace,
            "labels": {names.MANAGED_BY: names.MANAGER, names.VOLUME: names.check_label(volume)}
            | ({names.FILL: fill} if fill else {}),
        },
        "spec": spec,
    }


def owner_reference(owner: Manifest) -> Manifest:
    """Return the reference by which Kubernetes deletes an object together with its owner."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


def pod_spec(spec: ReplicaSpec, place: Placement) -> Manifest:
    """Return the pod of a workload; it passes Pod Security `restricted`.

    The pod has no probes: the platform probes a release before it gets traffic, and decides what a failure means.
    """
    user = _user_of(spec)
    is_run, is_server = isinstance(spec, RunSpec), isinstance(spec, ServerSpec)
    grace_s = STOP_GRACE_S if is_run else SERVER_STOP_GRACE_S if is_server else STOP_GRACE_S + place.drain_s
    pod: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never" if is_run else "Always",
        "terminationGracePeriodSeconds": grace_s,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(spec, place)],
    }
    if architecture := pod_files(spec).architecture:
        pod["nodeSelector"] = {"kubernetes.io/arch": architecture}
    if not place.claim:  # A pod with a claim cannot run elsewhere until the node is known to be off.
        pod["tolerations"] = [_toleration(name) for name in ("not-ready", "unreachable")]
    else:
        pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": place.claim}}]
    if place.pull_secret:
        pod["imagePullSecrets"] = [{"name": place.pull_secret}]
    return pod


def _toleration(state: str) -> Manifest:
    taint = {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute"}
    return {**taint, "tolerationSeconds": NODE_LOSS_S}


def _container(spec: ReplicaSpec, place: Placement) -> Manifest:
    port = port_of(spec)
    container: Manifest = {
        "name": names.CONTAINER,
        "image": pod_files(spec).image,
        "imagePullPolicy": "IfNotPresent",
        "command": escape(spec.argv),
        "env": _variables(spec, place),
        "resources": resources(spec.cpu, spec.memory_mb),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "File",
    }
    if port:
        container["ports"] = [{"name": "app", "containerPort": port}]
        if isinstance(spec, ServerSpec):
            container["ports"] += [{"name": "agent", "containerPort": spec.agent_port}] if spec.agent_port else []
        elif place.drain_s:
            container["lifecycle"] = {"preStop": {"sleep": {"seconds": place.drain_s}}}
    if workdir := pod_files(spec).workdir:
        container["workingDir"] = workdir
    if place.claim:
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return container


def _variables(spec: ReplicaSpec, place: Placement) -> list[Manifest]:
    """Return the variables by reference: values stay in the Secret, and the kubelet expands nothing in them."""
    port = port_of(spec)
    own = {"PORT": str(port), "HOST": "0.0.0.0"} if port else {}  # noqa: S104 - address inside the pod
    source = secret(spec, place)["metadata"]["name"]
    given = [name for name in sorted(spec.env) if name not in own]
    return [{"name": name, "value": value} for name, value in own.items()] + [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": source, "key": name}}} for name in given
    ]


def resources(cpu: float, memory_mb: int) -> Manifest:
    """Return limits and requests; memory is requested in full, because it cannot be taken back."""
    limit_m = max(MIN_CPU_REQUEST_M, math.ceil(cpu * 1000))
    request_m = max(MIN_CPU_REQUEST_M, limit_m // CPU_REQUEST_SHARE)
    memory = f"{memory_mb}Mi"
    return {"limits": {"cpu": f"{limit_m}m", "memory": memory}, "requests": {"cpu": f"{request_m}m", "memory": memory}}


def megabytes(quantity: str) -> int:
    """Return a quantity of bytes in MB. The API server writes the largest unit that fits: 1024Mi becomes 1Gi."""
    for suffix, size in (("Ki", 2**10), ("Mi", 2**20), ("Gi", 2**30), ("Ti", 2**40)):
        if quantity.endswith(suffix):
            return int(quantity.removesuffix(suffix)) * size // 2**20
    return int(quantity) // 2**20


def escape(argv: list[str]) -> list[str]:
    """Double each `$`: the kubelet replaces `$(NAME)` in commands by the value of a variable."""
    return [word.replace("$", "$$") for word in argv]


def _user_of(spec: ReplicaSpec) -> int:
    user = pod_files(spec).user.partition(":")[0]
    return int(user) if user.isdecimal() and int(user) > 0 else DEFAULT_USER


def _metadata(spec: ReplicaSpec, place: Placement, labels: dict[str, str]) -> Manifest:
    annotations = annotations_of(spec)
    return {"name": spec.key, "namespace": place.namespace, "labels": labels, "annotations": annotations}
