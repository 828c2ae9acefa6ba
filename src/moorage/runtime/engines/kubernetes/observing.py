"""State of a workload from what the cluster reports about it, as pure functions."""

from __future__ import annotations

import signal
from datetime import datetime
from typing import NamedTuple

from moorage.runtime.engines.kubernetes import names
from moorage.runtime.engines.kubernetes.manifests import Manifest, megabytes
from moorage.runtime.engines.ports import Phase, ReplicaState

# Reasons of a waiting container that no repetition mends.
FINAL = frozenset({"InvalidImageName", "ErrImageNeverPull", "CreateContainerError", "RunContainerError"})
PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"})
SIGNALS = 128  # exit codes above this are signals


class Trouble(NamedTuple):
    """Why a workload does not run; the text completes "it cannot be started: "."""

    text: str
    is_final: bool


def find_trouble(owner: Manifest, pod: Manifest | None, refusal: str = "") -> Trouble | None:
    """Return what keeps a workload from running; None if nothing is known to.

    `refusal` is the event about a pod that could not be created: the status of a StatefulSet does not have it.
    """
    if pod is None:
        return _refused(refusal) if refusal else _creation_trouble(owner)
    for condition in pod.get("status", {}).get("conditions", []):
        if (condition["type"], condition["status"]) == ("PodScheduled", "False"):
            return _scheduling_trouble(condition.get("message", ""))
    state = container_of(pod).get("state", {})
    for ended in (state.get("terminated", {}), container_of(pod).get("lastState", {}).get("terminated", {})):
        if ended.get("reason") in ("StartError", "ContainerCannotRun"):
            return Trouble(ended.get("message", "its program cannot be executed"), is_final=True)
    waiting = state.get("waiting", {})
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in PULL:
        image = pod["spec"]["containers"][0]["image"]
        return Trouble(f"the image {image} cannot be pulled ({message or reason})", reason in FINAL)
    if reason and reason not in ("ContainerCreating", "PodInitializing", "CrashLoopBackOff"):
        return Trouble(f"{reason}: {message}" if message else reason, reason in FINAL)
    return None


def _creation_trouble(owner: Manifest) -> Trouble | None:
    for condition in owner.get("status", {}).get("conditions", []):
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return _refused(condition.get("message", ""))
    return None


def _refused(message: str) -> Trouble:
    if "exceeded quota" in message:
        return Trouble(f"the quota of the organization in the cluster is used up ({message})", is_final=False)
    return Trouble(f"the cluster does not permit its pod ({message})", is_final=False)


def _scheduling_trouble(message: str) -> Trouble:
    if "PersistentVolumeClaim" in message or "persistentvolumeclaim" in message:
        return Trouble(f"its volume cannot be used yet ({message})", is_final=False)
    return Trouble(f"no node of the cluster has room for it ({message})", is_final=False)


def container_of(pod: Manifest) -> Manifest:
    statuses: list[Manifest] = pod.get("status", {}).get("containerStatuses") or [{}]
    return statuses[0]


def runs_with_claim(pod: Manifest, claim: str) -> bool:
    mounted = [each.get("persistentVolumeClaim", {}).get("claimName") for each in pod["spec"].get("volumes", [])]
    return claim in mounted and "running" in container_of(pod).get("state", {})


def has_ended(pod: Manifest) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_leaving(pod: Manifest) -> bool:
    """Whether the deletion of a pod has begun."""
    return "deletionTimestamp" in pod["metadata"]


def newest(pods: list[Manifest]) -> Manifest | None:
    """Return the pod that stands for a workload: not being deleted if possible, and the newest of those."""

    def rank(pod: Manifest) -> tuple[bool, str]:
        meta = pod["metadata"]
        return not is_leaving(pod), str(meta.get("creationTimestamp", ""))

    return max(pods, key=rank, default=None)


def observe(
    owner: Manifest, pod: Manifest | None, *, is_listening: bool, is_log_complete: bool, refusal: str = ""
) -> ReplicaState:
    """Return the state of a workload. A run has ended when its log is complete."""
    meta = owner["metadata"]
    port = int(meta["annotations"].get(names.PORT, "0"))
    ended = ended_of(pod) if pod is not None else {}
    phase = _phase(pod, is_run=port == 0, is_log_complete=is_log_complete)
    trouble = find_trouble(owner, pod, refusal) if phase in ("starting", "waiting") else None
    reason = reason_of(owner, pod, ended) if ended or (pod and has_ended(pod)) else None
    return ReplicaState(
        key=meta["labels"][names.KEY],
        pid=int(meta["uid"].replace("-", "")[:8], 16),
        started=to_ms(meta["creationTimestamp"]),
        port=port,
        phase=phase,
        is_listening=is_listening and phase == "running",
        restarts=int(container_of(pod).get("restartCount", 0)) if pod else 0,
        exit_code=ended.get("exitCode"),
        reason=trouble.text if trouble else reason,
        host=pod.get("status", {}).get("podIP", "") if pod else "",
        ended_ms=to_ms(ended["finishedAt"]) if phase == "stopped" and "finishedAt" in ended else 0,
    )


def _phase(pod: Manifest | None, *, is_run: bool, is_log_complete: bool) -> Phase:
    if pod is None:
        return "starting"
    if is_run and has_ended(pod):
        return "stopped" if is_log_complete else "running"
    status = container_of(pod)
    state = status.get("state", {})
    if "running" in state:
        return "running"
    if "terminated" in state:
        return "running" if is_run else "waiting"
    return "waiting" if status.get("restartCount") else "starting"


def ended_of(pod: Manifest) -> Manifest:
    """Return how the last process of a pod ended, empty if none has."""
    status = container_of(pod)
    for name in ("state", "lastState"):
        termination: Manifest = status.get(name, {}).get("terminated", {})
        if termination:
            return termination
    return {}


def reason_of(owner: Manifest, pod: Manifest | None, ended: Manifest) -> str | None:
    """Return why the last process ended; None for a run that succeeded."""
    template = owner["spec"]["template"]["spec"]
    is_run = owner["kind"] == "Job"
    if pod is not None and pod.get("status", {}).get("reason") == "DeadlineExceeded":
        return took_longer(int(template["activeDeadlineSeconds"]))
    code = ended.get("exitCode")
    if ended.get("reason") == "OOMKilled":
        memory = template["containers"][0]["resources"]["limits"]["memory"]
        return f"it ran out of memory ({megabytes(memory)} MB)"
    if code is None:
        why = pod.get("status", {}).get("message") if pod is not None else None
        return f"its pod was ended by the cluster ({why})" if why else "its pod was ended by the cluster"
    if code == 0 and is_run:
        return None
    return f"it was ended by {_signal_name(code - SIGNALS)}" if code > SIGNALS else f"it ended with exit code {code}"


def took_longer(timeout_s: int) -> str:
    number, unit = (timeout_s // 60, "minute") if timeout_s % 60 == 0 else (timeout_s, "second")
    return f"it took longer than {number} {unit}{'' if number == 1 else 's'}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def to_ms(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000)
