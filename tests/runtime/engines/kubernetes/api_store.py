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
FIRST_PHASES = {"PersistentVolumeClaim": "Pending", "Namespace": "Active"}
DELETED = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
FOREGROUND = "foregroundDeletion"
IN_USE = "kubernetes.io/pvc-protection"
RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
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

    def create(self, item: Manifest, *, is_dry: bool = False) -> Manifest:
        key = key_of(item)
        if key in self.objects:
            raise ApiError(409, "AlreadyExists", f'{self.plurals.get(key[0], key[0])} "{key[2]}" already exists')
        item = canonical(copy.deepcopy(item))
        self._default(item)
        self._admit(item)
        item["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
        if key[0] in FIRST_PHASES:
            item["status"] = {"phase": FIRST_PHASES[key[0]]}
        if not is_dry:
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
        _merge(new, canonical(copy.deepcopy(item)))
        self._applied[key] = copy.deepcopy(item)
        if new == old:
            return old
        self._check_immutable(old, new)
        return self.put(new)

    def merge(self, kind: str, namespace: str, name: str, change: Manifest) -> Manifest:
        """Strategic merge patch."""
        new = copy.deepcopy(self.get(kind, namespace, name))
        _merge(new, canonical(copy.deepcopy(change)), is_patch=True)
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
        is_foreground = options.get("propagationPolicy") == "Foreground" and kind != "Secret"
        if is_foreground or kind == "PersistentVolumeClaim":
            if "deletionTimestamp" not in meta:
                leaving = {"deletionTimestamp": now(), "deletionGracePeriodSeconds": 0}
                meta = {**meta, **leaving, "finalizers": [FOREGROUND if is_foreground else IN_USE]}
                return self.put({**item, "metadata": meta})
            return item
        self.remove(item)
        return DELETED

    def _delete_pod(self, item: Manifest, options: Manifest) -> Manifest:
        grace = options.get("gracePeriodSeconds")
        grace = item["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else int(grace)
        never_ran = not item["spec"].get("nodeName")
        if grace == 0 or never_ran or is_over(item):
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
            if IN_USE in item["metadata"].get("finalizers", []) and not self._users(item):
                self.remove(item)

    def compact(self) -> None:
        self.compacted = self.version
        self.events.clear()

    def _users(self, claim: Manifest) -> list[Manifest]:
        _, namespace, name = key_of(claim)
        return [pod for pod in self.all("Pod", namespace) if name in claims_of(pod) and not is_over(pod)]

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

    def _default(self, item: Manifest) -> None:
        """Add the defaults of a LimitRange to the containers of a pod."""
        ranges = self.all("LimitRange", item["metadata"].get("namespace", "")) if item["kind"] == "Pod" else []
        for limit in [limit for each in ranges for limit in each["spec"]["limits"]]:
            for container in item["spec"]["containers"]:
                resources = container.setdefault("resources", {})
                for bound, name in (("limits", "default"), ("requests", "defaultRequest")):
                    resources[bound] = {**limit[name], **resources.get(bound, {})}

    def _admit(self, item: Manifest) -> None:
        kind, namespace, name = key_of(item)
        if not NAME.fullmatch(name):
            raise ApiError(
                422, "Invalid", f'{kind} "{name}" is invalid: metadata.name: Invalid value: "{name}": {RULE}'
            )
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
        (container,) = pod["spec"]["containers"]
        inner = container.get("securityContext", {})
        who = f'container "{container["name"]}" must set securityContext'
        rules = {
            f"allowPrivilegeEscalation != false ({who}.allowPrivilegeEscalation=false)": inner.get(
                "allowPrivilegeEscalation"
            )
            is False,
            f'unrestricted capabilities ({who}.capabilities.drop=["ALL"])': inner.get("capabilities", {}).get("drop")
            == ["ALL"],
            f"runAsNonRoot != true (pod or {who}.runAsNonRoot=true)": own.get("runAsNonRoot") is True,
            f'seccompProfile (pod or {who}.seccompProfile.type to "RuntimeDefault" or "Localhost")': own.get(
                "seccompProfile", {}
            ).get("type")
            == "RuntimeDefault",
        }
        if wrong := ", ".join(text for text, is_kept in rules.items() if not is_kept):
            name = pod["metadata"]["name"]
            text = f'pods "{name}" is forbidden: violates PodSecurity "restricted:latest": {wrong}'
            raise ApiError(403, "Forbidden", text)

    def _check_quota(self, item: Manifest) -> None:
        kind, namespace, name = key_of(item)
        asked = _charges(item)
        for quota in self.all("ResourceQuota", namespace):
            hard = {what: amount(limit) for what, limit in quota["spec"]["hard"].items()}
            living = [each for each in self.all(kind, namespace) if not is_over(each)]
            used = {what: sum(_charges(each).get(what, 0) for each in living) for what in asked}
            over = sorted(what for what in asked if what in hard and used[what] + asked[what] > hard[what])
            if over:
                lists = [
                    ",".join(f"{what}={shown(what, amounts[what])}" for what in over) for amounts in (asked, used, hard)
                ]
                text = f"requested: {lists[0]}, used: {lists[1]}, limited: {lists[2]}"
                what = f'{self.plurals[kind]} "{name}" is forbidden: exceeded quota: {quota["metadata"]["name"]}'
                raise ApiError(403, "Forbidden", f"{what}, {text}")

    def _check_immutable(self, old: Manifest, new: Manifest) -> None:
        name = old["metadata"]["name"]
        if old["kind"] == "Secret" and old.get("immutable") and old.get("data") != new.get("data"):
            text = f'Secret "{name}" is invalid: data: Forbidden: field is immutable when `immutable` is set'
            raise ApiError(422, "Invalid", text)
        if old["kind"] == "Job" and old["spec"]["template"] != new["spec"]["template"]:
            raise ApiError(422, "Invalid", f'Job "{name}" is invalid: spec.template: field is immutable')


def key_of(item: Manifest) -> ObjectKey:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def canonical(item: Any, field: str = "") -> Any:
    """Write quantities as the API server does: `1000m` becomes `1`, and `1024Mi` becomes `1Gi`."""
    if field in ("limits", "requests", "hard") and isinstance(item, dict):
        return {name: shown(name, amount(value)) for name, value in item.items()}
    if isinstance(item, dict):
        return {name: canonical(value, name) for name, value in item.items()}
    return [canonical(each) for each in item] if isinstance(item, list) else item


def claims_of(pod: Manifest) -> list[str]:
    volumes = pod["spec"].get("volumes", [])
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]


def is_over(pod: Manifest) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def amount(quantity: str) -> int:
    """Return a quantity in thousandths."""
    for suffix, factor in (("m", 1), ("Gi", 1000 * 2**30), ("Mi", 1000 * 2**20)):
        if quantity.endswith(suffix):
            return int(quantity.removesuffix(suffix)) * factor
    return int(quantity) * 1000


def shown(what: str, thousandths: int) -> str:
    """Return an amount with the largest unit that fits."""
    if thousandths % 1000:
        return f"{thousandths}m"
    for suffix, factor in (("Gi", 2**30), ("Mi", 2**20)):
        if what.endswith(("memory", "storage")) and thousandths and thousandths // 1000 % factor == 0:
            return f"{thousandths // 1000 // factor}{suffix}"
    return str(thousandths // 1000)


def _charges(item: Manifest) -> dict[str, int]:
    """Return what an object counts for in a quota."""
    if item["kind"] == "PersistentVolumeClaim":
        size = item["spec"]["resources"]["requests"]["storage"]
        return {"persistentvolumeclaims": 1000, "requests.storage": amount(size)}
    if item["kind"] == "Service":
        return {"services": 1000}
    if item["kind"] != "Pod":
        return {}
    limits = [each.get("resources", {}).get("limits", {}) for each in item["spec"]["containers"]]
    sums = {f"limits.{name}": sum(amount(each.get(name, "0")) for each in limits) for name in ("cpu", "memory")}
    return {"pods": 1000, **sums}


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
