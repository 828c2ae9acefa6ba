"""Settings of a Kubernetes cluster, which the engine `kubernetes` uses."""

from __future__ import annotations

from enum import StrEnum
from urllib.parse import urlsplit

from moorage.core.edges import EdgePlaces
from moorage.core.validated import Field, SecretStr, field_validator

PLAIN_ARTIFACTS = (
    "MOORAGE_ARTIFACTS_ENDPOINT: files would travel in the clear: use https, or set MOORAGE_ARTIFACTS_ALLOW_HTTP=1 "
    "where the network is trusted"
)
_LABEL = r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"


class Dockerfiles(StrEnum):
    PRIVILEGED = "privileged"  # the sandboxes of RUN are those of one machine, in a pod with all rights on its node
    OFF = "off"  # Dockerfiles are refused


class ClusterSettings(EdgePlaces):
    """Part of the settings."""

    # A Kubernetes cluster.
    kubeconfig: str = Field(
        "", description="File with the access to the cluster. Default: the service account of the platform's pod."
    )
    kubernetes_namespace: str = Field(
        "moorage",
        pattern=_LABEL,
        description="Namespace of the platform's own pods, which network policies let connect to apps.",
    )
    kubernetes_prefix: str = Field(
        "moorage", pattern=_LABEL, description="Start of the names of organizations' namespaces, `<prefix>-org-<id>`."
    )
    kubernetes_storage_class: str = Field(
        "", description="Storage class of the volumes of apps. Default: the one of the cluster."
    )
    kubernetes_app_image: str = Field(
        "",
        description="Image in which built repositories run that have no Dockerfile, and the probe of network "
        "policies: the image of this platform, because it has the same system libraries and language runtimes.",
    )
    kubernetes_build_image: str = Field(
        "",
        description="Image of this platform, in which builds run as Jobs; the nodes pull it with the account of the "
        "registry. Default: builds run in the sandbox of the process that has the job.",
    )
    kubernetes_dockerfiles: Dockerfiles = Field(
        Dockerfiles.PRIVILEGED,
        description="Pods that build Dockerfiles, in a namespace of their own for each organization: `privileged`, or "
        "`off`, which refuses Dockerfiles.",
    )
    kubernetes_database_image: str = Field(
        "",
        description="Image with the agent and the software of database servers: the image of this platform. Default: "
        "MOORAGE_KUBERNETES_APP_IMAGE; without both, no databases are offered.",
    )
    edge_address: str = Field(
        "",
        pattern=r"^([A-Za-z0-9.-]+:[0-9]{1,5})?$",
        description="`host:port` of the edge for public calls, for `moorage gateway` and with MOORAGE_EDGE_HOSTS. "
        "Without it, functions have no route there.",
    )
    registry_url: str = Field(
        "",
        description="`https://host/path` of the registry that the nodes pull from, and that the platform pushes to.",
    )
    registry_username: str = Field("", description="Account at that registry. Default: none.")
    registry_password: SecretStr = Field(SecretStr(""), description="Password or access token of that account.")

    @field_validator("registry_url")
    @classmethod
    def _registry_has_a_host(cls, url: str) -> str:
        parts = urlsplit(url)
        if url and (parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query):
            raise ValueError("should be like https://registry.example.com/moorage, without an account in it")
        return url.rstrip("/")

    @property
    def database_image(self) -> str:
        """Return the image of database servers in a cluster."""
        return self.kubernetes_database_image or self.kubernetes_app_image
