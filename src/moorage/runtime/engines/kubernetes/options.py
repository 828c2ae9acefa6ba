"""Options of the engine, from the operator's settings."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import field

from moorage.core.kit.records import dataclass
from moorage.runtime.engines.kubernetes.manifests import NODE_DRAIN_S
from moorage.runtime.engines.kubernetes.tenancy import NamespaceLimits, NetworkRules

PATIENCE_S = 60.0
RUN_PATIENCE_S = 180.0  # Kubernetes tries to create the refused pod of a Job again up to a minute later.
SERVER_PATIENCE_S = 20.0  # A database server waits in the cluster for what it lacks, while its start has the reason.


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    prefix: str = "moorage"  # of the namespaces of organizations
    namespace: str = "moorage"  # of the platform's own pods, which may connect to workloads
    kind: str = ""  # of the workloads of this engine, `app`, `server` or `run`; "" for all
    agent_image: str = ""  # with the agent and the software of database servers; "" to run none
    agent_architecture: str = ""  # of that image, such as "arm64"; "" for any
    fill_image: str = ""  # of the platform, for pods that fill volumes
    pod_security: str = "restricted"  # Pod Security Standard of the namespaces
    storage_class: str = ""  # "" for the default of the cluster
    pull_secret: str = ""  # Secret with credentials of the registry, in each namespace
    registry_config: str = field(default="", repr=False)  # content of that Secret; "" if the operator makes it
    drain_s: int = NODE_DRAIN_S
    patience_s: float = PATIENCE_S  # A new workload that cannot run for this long has failed to start.
    run_patience_s: float = RUN_PATIENCE_S  # the same for a run
    start_timeout_s: float = 600.0  # for all of a start, such as a long pull of an image
    limits: NamespaceLimits = field(default_factory=NamespaceLimits)
    rules: NetworkRules = field(default_factory=NetworkRules)


def registry_config(host: str, username: str, password: str) -> str:
    """Return the content of a Secret with the account of a registry."""
    auth = b64encode(f"{username}:{password}".encode()).decode()
    return json.dumps({"auths": {host: {"username": username, "password": password, "auth": auth}}})
