"""Controllers of the cluster of the tests: Deployments, StatefulSets, Jobs, claims and the scheduler."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from typing import Any

from tests.runtime.engines.kubernetes.api_store import ApiError, Manifest, Store, amount, claims_of, is_over, now

NODE = "node-1"


@dataclass
class Controllers:
    store: Store
    memory_mb: int = 4096  # of the node
    storage_classes: tuple[str, ...] = ("", "fast")

    def step(self) -> None:
        """Compare what is wanted with what is there, once."""
        for item in self.store.all("Deployment"):
            if "deletionTimestamp" not in item["metadata"]:
                self._deployment(item)
        for item in self.store.all("ReplicaSet"):  # also those of a Deployment that is being deleted
            if "deletionTimestamp" not in item["metadata"]:
                self._replica(item)
        for item in self.store.all("StatefulSet"):
            if "deletionTimestamp" not in item["metadata"]:
                self._stateful_set(item)
        for item in self.store.all("Job"):
            if "deletionTimestamp" not in item["metadata"]:
                self._job(item)
        for item in self.store.all("PersistentVolumeClaim"):
            if (
                item["status"]["phase"] == "Pending"
                and item["spec"].get("storageClassName", "") in self.storage_classes
            ):
                self.store.status(item, {"phase": "Bound"})
        for item in self.store.all("Pod"):
            if not item["spec"].get("nodeName") and "deletionTimestamp" not in item["metadata"]:
                self._schedule(item)

    def _deployment(self, item: Manifest) -> None:
        template = json.dumps(item["spec"]["template"], sort_keys=True).encode()
        name = f"{item['metadata']['name']}-{hashlib.sha256(template).hexdigest()[:10]}"
        namespace = item["metadata"]["namespace"]
        for other in self._owned("ReplicaSet", item):
            if other["metadata"]["name"] != name:
                self.store.delete("ReplicaSet", namespace, other["metadata"]["name"], {})
        owned = [each for each in self._owned("ReplicaSet", item) if each["metadata"]["name"] == name]
        if not owned:
            meta = {"name": name, "namespace": namespace, "ownerReferences": [_owner(item)]}
            meta["labels"] = item["spec"]["template"]["metadata"]["labels"]
            spec = {"replicas": 1, "template": item["spec"]["template"]}
            owned = [self.store.create({"kind": "ReplicaSet", "apiVersion": "apps/v1", "metadata": meta, "spec": spec})]
        (replica_set,) = owned
        error = self._replica(replica_set)
        conditions = []
        if error:
            if item.get("status", {}).get("conditions"):
                return  # The real controller waits longer and longer; another message would wake this one at once.
            conditions = [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": error}]
        self.store.status(item, {"observedGeneration": 1, **({"conditions": conditions} if conditions else {})})

    def _replica(self, replica_set: Manifest) -> str | None:
        pods = [pod for pod in self._owned("Pod", replica_set) if "deletionTimestamp" not in pod["metadata"]]
        active = [pod for pod in pods if pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")]
        if active:
            return None
        try:
            self._create_pod(replica_set, replica_set["spec"]["template"])
        except ApiError as error:
            return str(error)
        return None

    def _stateful_set(self, item: Manifest) -> None:
        """Keep one pod with a fixed name. A failure is an event only: the status does not have it."""
        meta = item["metadata"]
        name = f"{meta['name']}-0"
        if ("Pod", meta["namespace"], name) in self.store.objects:
            return
        try:
            self._create_pod(item, item["spec"]["template"], name)
        except ApiError as error:
            self._refused(item, f"Create Pod {name} in StatefulSet {meta['name']} failed error: {error}")

    def _refused(self, item: Manifest, text: str) -> None:
        """Report a pod that cannot be created by an event about its owner."""
        meta = item["metadata"]
        key = ("Event", meta["namespace"], f"{meta['name']}.refused")
        if self.store.objects.get(key, {}).get("involvedObject", {}).get("uid") == meta["uid"]:
            return
        if key in self.store.objects:
            self.store.remove(self.store.objects[key])
        about = {"kind": item["kind"], "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
        event = {"kind": "Event", "apiVersion": "v1", "metadata": {"name": key[2], "namespace": key[1]}}
        self.store.create(
            {**event, "involvedObject": about, "reason": "FailedCreate", "message": text, "lastTimestamp": now()}
        )

    def _job(self, item: Manifest) -> None:
        pods = self._owned("Pod", item)
        if item.get("status", {}).get("conditions"):
            return
        if not pods:
            try:
                self._create_pod(item, item["spec"]["template"])
            except ApiError as error:
                self._refused(item, f"Error creating: {error}")
            return
        phase = pods[0].get("status", {}).get("phase")
        if phase == "Succeeded":
            condition = {"type": "Complete", "status": "True"}
        elif phase == "Failed":
            condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
        else:
            return
        self.store.status(item, {"conditions": [condition], "completionTime": now()})

    def _create_pod(self, owner: Manifest, template: Manifest, name: str = "") -> None:
        name = name or f"{owner['metadata']['name']}-{secrets.token_hex(3)[:5]}"
        meta = {**template["metadata"], "name": name, "namespace": owner["metadata"]["namespace"]}
        meta["ownerReferences"] = [_owner(owner)]
        pod = {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": template["spec"]}
        self.store.create({**pod, "status": {"phase": "Pending"}})

    def _schedule(self, pod: Manifest) -> None:
        obstacle = self._obstacle(pod)
        if obstacle is None:
            self.store.put({**pod, "spec": {**pod["spec"], "nodeName": NODE}})
            return
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": obstacle}
        self.store.status(pod, {"phase": "Pending", "conditions": [condition]})

    def _obstacle(self, pod: Manifest) -> str | None:
        namespace = pod["metadata"]["namespace"]
        for name in claims_of(pod):
            claim = self.store.objects.get(("PersistentVolumeClaim", namespace, name))
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if claim["status"]["phase"] != "Bound":
                return "pod has unbound immediate PersistentVolumeClaims. not found"
            users = [other for other in self.store.all("Pod", namespace) if name in claims_of(other)]
            if any(other["spec"].get("nodeName") and not is_over(other) for other in users):
                return (
                    "0/1 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and "
                    "ReadWriteOncePod access mode."
                )
        needed = sum(_memory_mb(each) for each in [pod, *self.store.all("Pod")] if each is pod or _holds_memory(each))
        return "0/1 nodes are available: 1 Insufficient memory." if needed > self.memory_mb else None

    def _owned(self, kind: str, owner: Manifest) -> list[Manifest]:
        uid = owner["metadata"]["uid"]
        items = self.store.all(kind, owner["metadata"]["namespace"])
        return [item for item in items if any(each["uid"] == uid for each in _owners(item))]


def _owners(item: Manifest) -> Any:
    return item["metadata"].get("ownerReferences", [])


def _owner(item: Manifest) -> Manifest:
    meta = item["metadata"]
    found = {"apiVersion": item["apiVersion"], "kind": item["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**found, "controller": True, "blockOwnerDeletion": True}


def _holds_memory(pod: Manifest) -> bool:
    return bool(pod["spec"].get("nodeName")) and not is_over(pod)


def _memory_mb(pod: Manifest) -> int:
    return sum(amount(each["resources"]["requests"]["memory"]) for each in pod["spec"]["containers"]) // 1000 // 2**20
