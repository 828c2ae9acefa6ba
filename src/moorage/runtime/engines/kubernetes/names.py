"""Names, labels and annotations of the objects in a cluster."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

MANAGER = "moorage"  # field manager of server-side apply, and value of the label `managed-by`
MANAGED_BY = "app.kubernetes.io/managed-by"
PART = "moorage.dev/part"  # of the platform, such as `gateway`; on pods of the chart
ORGANIZATION = "moorage.dev/organization"
KEY = "moorage.dev/key"  # of a workload, such as `r17`
NAME = "moorage.dev/name"  # stable name of a workload, such as `database-17`
KIND = "moorage.dev/kind"  # `app`, `server`, `run`, `command`, `build`
OWNER = "moorage.dev/owner"  # of a build's result, such as `deployment-17`
MACHINE = "moorage.dev/machine"  # host name of the process that started a build
VOLUME = "moorage.dev/volume"
TRASH = "moorage.dev/trash"  # on claims of discarded volumes
FILL = "moorage.dev/fill"  # on claims that are filled with the files that an app had on one machine
TOKEN = "moorage.dev/token-sha256"  # noqa: S105 - annotation: hash of the token that an adopting process must know
LOG = "moorage.dev/log"  # annotation: name of the log
PORT = "moorage.dev/port"  # annotation: port of the workload, 0 for none
HIDDEN = "moorage-hidden"  # key of a Secret: values to mask in the log, as JSON
CONTAINER = "main"
UNFILLED, FILLED = "pending", "done"  # values of FILL

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def check_label(name: str) -> str:
    """Return a name that is valid for an object and for a label; raise ValueError for any other."""
    if not _LABEL.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid name in Kubernetes: use a-z, 0-9 and -, at most 63 characters")
    return name


def namespace_of(prefix: str, org_id: int) -> str:
    return check_label(f"{prefix}-org-{org_id}")


def digest_of(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def secret_name(key: str, token: str, data: Mapping[str, str]) -> str:
    """Return a name that changes with the content, because an immutable Secret cannot be changed."""
    content = [part for name in sorted(data) for part in (name, data[name])]
    return check_label(f"{key}-{digest_of(token, *content)[:12]}")
