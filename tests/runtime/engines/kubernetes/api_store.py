"""Objects of the API server of the tests: versions, history, server-side apply, deletion and admission.

All calls come from the thread of the server.
"""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Manifest = dict[str, Any]
ObjectKey = tuple[str, str, str]  # kind, namespace, name

GLOBAL = {"Namespace", "Node"}
OWNED_KINDS = {"ReplicaSet", "Pod", "Secret", "NetworkPolicy"}
FOREGROUND = "foregroundDeletion"
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class ApiError(Exception):
    """A refusal, with the body that the real API server sends."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Event:
    version: int
    kind: str
    type: str
    item: Manifest


@dataclass
class Store:
    """The objects, and the changes since the last compaction."""

    objects: dict[ObjectKey, Manifest] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    compacted: int = 0  # changes up to this version are no longer known
    version: int = 100
    on_change: Callable[[], None] = lambda: None
    plurals: dict[str, str] = field(default_factory=dict)
    _applied: dict[ObjectKey, Manifest] = field(default_factory=dict)

    def get(self, kind: str, namespace: str, name: str) -> Manifest:
        item = self.objects.get((kind, namespace, name))
        if item is None:
            raise ApiError(404, "NotFound", f'{self.plurals.get(kind, kind)} "{name}" not found')
        return item

    def all(self, kind: str, namespace: str = "", selector: str = "") -> list[Manifest]:
        return [
            item
            for (its_kind, its_namespace, _), item in sorted(self.objects.items())
            if its_kind == kind and namespace in ("", its_namespace) and matches(item, selector)
        ]

    def create(self, item: Manifest) -> Manifest:
        key = key_of(item)
        if key in self.objects:
            raise ApiError(409, "AlreadyExists", f'{self.plurals.get(key[0], key[0])} "{key[2]}" already exists')
        self._admit(item)
        item = copy.deepcopy(item)
        item["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
        if key[0] == "PersistentVolumeClaim":
            item["status"] = {"phase": "Pending"}
        self._put(key, item, "ADDED")
        return item

    def apply(self, item: Manifest) -> Manifest:
        """Server-side apply by one manager: fields that it no longer applies are removed."""
        key = key_of(item)
        old = self.objects.get(key)
        if old is None:
            made = self.create(item)
            self._applied[key] = copy.deepcopy(item)
            return made
        new = copy.deepcopy(old)
        _remove_missing(new, self._applied.get(key, {}), item)
        _merge(new, item)
        self._applied[key] = copy.deepcopy(item)
        if new == old:
            return old
        self._check_immutable(old, new)
        return self.put(new)

    def merge(self, kind: str, namespace: str, name: str, change: Manifest) -> Manifest:
        """Strategic merge patch."""
        new = copy.deepcopy(self.get(kind, namespace, name))
        _merge(new, change, is_patch=True)
        return self.put(new)

    def put(self, item: Manifest) -> Manifest:
        """Store a changed object; nothing changes if it is the same."""
        key = key_of(item)
        if self.objects.get(key) == item:
            return item
        self._put(key, copy.deepcopy(item), "MODIFIED")
        return self.objects[key]

    def status(self, item: Manifest, status: Manifest) -> None:
        current = self.objects.get(key_of(item))
        if current is not None and current["metadata"]["uid"] == item["metadata"]["uid"]:
            self.put({**current, "status": status})

    def delete(self, kind: str, namespace: str, name: str, options: Manifest) -> Manifest:
        item = self.get(kind, namespace, name)
        meta = item["metadata"]
        if kind == "Pod":
            return self._delete_pod(item, options)
        if options.get("propagationPolicy") == "Foreground" and kind != "Secret":
            if "deletionTimestamp" not in meta:
                meta = {**meta, "deletionTimestamp": now(), "finalizers": [FOREGROUND]}
                return self.put({**item, "metadata": meta})
            return item
        self.remove(item)
        return item

    def _delete_pod(self, item: Manifest, options: Manifest) -> Manifest:
        grace = options.get("gracePeriodSeconds")
        grace = item["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else int(grace)
        never_ran = not item["spec"].get("nodeName")
        is_over = item.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if grace == 0 or never_ran or is_over:
            self.remove(item)
            return item
        earlier = item["metadata"].get("deletionGracePeriodSeconds")
        if earlier is not None and earlier <= grace:
            return item
        meta = {**item["metadata"], "deletionTimestamp": now(), "deletionGracePeriodSeconds": grace}
        return self.put({**item, "metadata": meta})

    def remove(self, item: Manifest) -> None:
        key = key_of(item)
        current = self.objects.pop(key, None)
        self._applied.pop(key, None)
        if current is not None:
            self._record(key[0], "DELETED", current)

    def collect(self) -> None:
        """Garbage collection: delete what has lost its owners, and finish foreground deletions."""
        for namespace in {key[1] for key in self.objects if key[1]} - {key[2] for key in self.objects if key[1] == ""}:
            for item in [item for key, item in self.objects.items() if key[1] == namespace]:
                self.remove(item)
        uids = {item["metadata"]["uid"]: item for item in self.objects.values()}
        for item in list(self.objects.values()):
            owners = item["metadata"].get("ownerReferences", [])
            if not owners or "deletionTimestamp" in item["metadata"]:
                continue
            living = [uids[owner["uid"]] for owner in owners if owner["uid"] in uids]
            if all(FOREGROUND in owner["metadata"].get("finalizers", []) for owner in living):
                policy = "Foreground" if living and item["kind"] == "ReplicaSet" else "Background"
                self.delete(*key_of(item), {"propagationPolicy": policy})
        for item in list(self.objects.values()):
            if FOREGROUND in item["metadata"].get("finalizers", []) and not self._dependents(item):
                self.remove(item)

    def compact(self) -> None:
        self.compacted = self.version
        self.events.clear()

    def _dependents(self, owner: Manifest) -> list[Manifest]:
        uid = owner["metadata"]["uid"]
        return [
            item
            for item in self.objects.values()
            if any(each["uid"] == uid for each in item["metadata"].get("ownerReferences", []))
        ]

    def _put(self, key: ObjectKey, item: Manifest, event: str) -> None:
        self.objects[key] = item
        self._record(key[0], event, item)

    def _record(self, kind: str, event: str, item: Manifest) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self.events.append(Event(self.version, kind, event, copy.deepcopy(item)))
        self.on_change()

    def _admit(self, item: Manifest) -> None:
        kind, namespace, name = key_of(item)
        if not NAME.fullmatch(name):
            raise ApiError(422, "Invalid", f'{kind} "{name}" is invalid: metadata.name: Invalid value: "{name}"')
        if kind in GLOBAL:
            return
        if ("Namespace", "", namespace) not in self.objects:
            raise ApiError(404, "NotFound", f'namespaces "{namespace}" not found')
        labels = self.objects["Namespace", "", namespace]["metadata"].get("labels", {})
        if kind == "Pod" and labels.get("pod-security.kubernetes.io/enforce") == "restricted":
            self._check_restricted(item)
        self._check_quota(item)

    def _check_restricted(self, pod: Manifest) -> None:
        own = pod["spec"].get("securityContext", {})
        containers = [each.get("securityContext", {}) for each in pod["spec"]["containers"]]
        wrong = [
            *(["runAsNonRoot != true"] if own.get("runAsNonRoot") is not True else []),
            *(["seccompProfile"] if own.get("seccompProfile", {}).get("type") != "RuntimeDefault" else []),
            *(["allowPrivilegeEscalation"] for each in containers if each.get("allowPrivilegeEscalation") is not False),
            *(["capabilities"] for each in containers if each.get("capabilities", {}).get("drop") != ["ALL"]),
        ]
        if wrong:
            name = pod["metadata"]["name"]
            raise ApiError(403, "Forbidden", f'pods "{name}" is forbidden: violates PodSecurity "restricted": {wrong}')

    def _check_quota(self, item: Manifest) -> None:
        kind, namespace, name = key_of(item)
        counted = {"Pod": "pods", "PersistentVolumeClaim": "persistentvolumeclaims"}.get(kind)
        for quota in self.all("ResourceQuota", namespace):
            limit = quota["spec"]["hard"].get(counted)
            used = len([each for each in self.all(kind, namespace) if each.get("status", {}).get("phase") != "Failed"])
            if limit is not None and used >= int(limit):
                what = f"{quota['metadata']['name']}, requested: {counted}=1, used: {counted}={used}"
                text = f'{counted} "{name}" is forbidden: exceeded quota: {what}, limited: {counted}={limit}'
                raise ApiError(403, "Forbidden", text)

    def _check_immutable(self, old: Manifest, new: Manifest) -> None:
        name = old["metadata"]["name"]
        if old["kind"] == "Secret" and old.get("immutable") and old.get("data") != new.get("data"):
            text = f'Secret "{name}" is invalid: data: Forbidden: field is immutable when `immutable` is set'
            raise ApiError(422, "Invalid", text)
        if old["kind"] == "Job" and old["spec"]["template"] != new["spec"]["template"]:
            raise ApiError(422, "Invalid", f'Job "{name}" is invalid: spec.template: field is immutable')


def key_of(item: Manifest) -> ObjectKey:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def matches(item: Manifest, selector: str) -> bool:
    """Whether the labels match: `a=b`, `a!=b`, `a` and `!a`, joined by commas."""
    labels = item["metadata"].get("labels", {})
    for term in filter(None, selector.split(",")):
        if "!=" in term:
            name, _, value = term.partition("!=")
            if labels.get(name) == value:
                return False
            continue
        name, has_value, value = term.lstrip("!").partition("=")
        if has_value and labels.get(name) != value:
            return False
        if not has_value and (name in labels) == term.startswith("!"):
            return False
    return True


def _merge(target: Manifest, change: Manifest, *, is_patch: bool = False) -> None:
    for name, value in change.items():
        if value is None and is_patch:
            target.pop(name, None)
        elif isinstance(value, dict) and isinstance(target.get(name), dict):
            _merge(target[name], value, is_patch=is_patch)
        elif is_patch and name == "containers":
            for container in value:
                (known,) = [each for each in target[name] if each["name"] == container["name"]]
                _merge(known, container, is_patch=True)
        else:
            target[name] = copy.deepcopy(value)


def _remove_missing(target: Manifest, before: Manifest, after: Manifest) -> None:
    for name, value in before.items():
        if name not in after:
            target.pop(name, None)
        elif isinstance(value, dict) and isinstance(target.get(name), dict) and isinstance(after[name], dict):
            _remove_missing(target[name], value, after[name])
