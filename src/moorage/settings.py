"""All settings: one frozen object, read once from `MOORAGE_*`.

Each field is an environment variable (`MOORAGE_` and the upper-case name) and a flag of `moorage up` (`--` and the name
with dashes). The reference documentation prints its description.
"""

from __future__ import annotations

import ipaddress
import os
from enum import StrEnum
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from moorage.core.certificates import CertificateSettings
from moorage.core.cluster import PLAIN_ARTIFACTS
from moorage.core.kit.secret_text import weakness
from moorage.core.net import function_hosts, registry_mirrors
from moorage.core.net.targets import TargetPolicy
from moorage.core.validated import Field, SecretStr, ValidationError, field_validator, model_validator
from moorage.errors import CannotStart


class Mode(StrEnum):
    DEVELOPMENT = "development"  # one machine, one person: keys are generated, loopback targets are allowed
    PRODUCTION = "production"  # several tenants: keys are required, all checks are strict


class Billing(StrEnum):
    NONE = "none"  # every organization counts as verified and paid
    MANUAL = "manual"  # an operator verifies cards and sets plans by command
    STRIPE = "stripe"  # Stripe's signed events verify cards and set plans


class Signup(StrEnum):
    OPEN = "open"  # a first login is approved at once
    APPROVAL = "approval"  # a first login waits for `moorage admin approve`
    CLOSED = "closed"  # only existing users may log in


class Engine(StrEnum):
    LOCAL = "local"  # sandboxed processes on this machine
    DOCKER = "docker"  # refused: the local engine runs images without Docker
    KUBERNETES = "kubernetes"  # pods of a cluster


class Sandbox(StrEnum):
    AUTO = "auto"  # users' code runs in a sandbox; production refuses to start without one
    OFF = "off"  # users' code runs with the platform's own rights: for one trusted person only


class Substitution(StrEnum):
    OFF = "off"  # only the requested database release
    MINOR = "minor"  # another release of the same major version
    ANY = "any"  # also another product, such as MariaDB for MySQL


class BadSettings(CannotStart):
    """The settings are invalid; the message names each variable and its valid values."""


class Settings(CertificateSettings):
    """The operator's configuration. Frozen: a changed setting requires a restart."""

    # Data folder and listeners.
    data: Path = Field(Path(".moorage"), description="Folder for all state.")
    mode: Mode = Field(
        Mode.DEVELOPMENT,
        description="`development` (the default on loopback) or `production` (refuses to start without keys).",
    )
    host: str = Field("127.0.0.1", description="Address that the API, the gateway and the edge listen on.")
    api_port: int = Field(8080, ge=1, le=65535, description="Port of the API and console.")
    gateway_port: int = Field(8081, ge=1, le=65535, description="Port of the public gateway.")
    edge_port: int = Field(8082, ge=1, le=65535, description="Port of the edge, which serves functions.")
    metrics_port: int = Field(
        8083,
        ge=0,
        le=65535,
        description="Loopback port of `/metrics` and `/ready`; 0 disables it. If it is not set and 8083 is in use, a "
        "free port is chosen and printed.",
    )
    base_url: str = Field("", description="Public address of the API. Default: `http://localhost:<api port>`.")
    edge_url: str = Field("", description="Public address of functions. Default: `http://localhost:<edge port>`.")
    apps_domain: str = Field("", description="Domain that projects are subdomains of. Default: `localhost`.")
    functions_domain: str = Field(
        "",
        description="Parent domain of the organizations' hosts for functions, `org-<id>.<domain>`. Default: the host "
        "of the edge URL; in production without one, `edge.<apps domain>`.",
    )
    https_port: int = Field(
        0, ge=0, le=65535, description="TLS port of the public gateway; 0 if a proxy terminates TLS."
    )

    # Storage.
    database_url: SecretStr = Field(SecretStr(""), description="`postgresql://…`. Default: SQLite in the data folder.")
    artifacts_url: str = Field("", description="`s3://bucket/prefix`. Default: a folder in the data folder.")
    artifacts_endpoint: str = Field("", description="Address of an S3-compatible server other than Amazon's.")
    artifacts_allow_http: bool = Field(False, description="Permit `http://` to S3 elsewhere, as within a cluster.")
    artifacts_region: str = Field("us-east-1", description="Region of the S3 bucket.")
    artifacts_access_key: SecretStr = Field(SecretStr(""), description="Access key of the S3 bucket.")
    artifacts_secret_key: SecretStr = Field(SecretStr(""), description="Secret key of the S3 bucket.")
    disk_reserve_mb: int = Field(
        1024, ge=0, description="Free disk space below which uploads, builds, growing apps and function logs stop."
    )
    images_gb: int = Field(20, ge=1, description="Disk space of the images that one organization may use in a day.")
    image_files: int = Field(1_000_000, ge=1000, description="Files in images that one organization may use in a day.")
    registry_mirrors: tuple[str, ...] = Field(
        (), description="Mirrors of image registries, such as `docker.io=mirror.example.com`, comma-separated."
    )
    snapshots_to_keep: int = Field(7, ge=1, le=365, description="Number of nightly database snapshots to keep.")

    # Several machines on one PostgreSQL.
    machine_name: str = Field("", pattern=r"^[A-Za-z0-9._-]{0,63}$", description="Name. Default: the host's.")
    machine_address: str = Field(
        "",
        description="`host:port` at which other machines reach this one. Default: the "
        "host, or else the address that reaches PostgreSQL, and any port.",
    )
    machine_labels: tuple[str, ...] = Field((), description="Labels, `key=value`, comma-separated.")

    # Users' code.
    engine: Engine = Field(
        Engine.LOCAL, description="`local`, or `kubernetes`, which needs a registry. `docker` is refused."
    )
    engine_substitution: Substitution | None = Field(
        None,
        description="Allowed substitutes for a missing database release: `off`, `minor` (production default), `any` "
        "(development default).",
    )
    auto_database: bool = Field(
        True,
        description="The first deployment of an app that needs a PostgreSQL or MySQL creates one of the tier `free`. A "
        "project turns this off with its own variable of this name: `off`.",
    )
    sandbox: Sandbox = Field(
        Sandbox.AUTO,
        description="`auto`, or `off` to run users' code without a sandbox. With `auto` on a machine that cannot "
        "sandbox, production refuses to start and development warns.",
    )
    sandbox_allow: tuple[str, ...] = Field(
        (), description="Private networks that sandboxed code may connect to, comma-separated."
    )
    sandbox_block: tuple[str, ...] = Field(
        (),
        description="Public networks that neither sandboxed code nor users' URLs may connect to, comma-separated.",
    )
    extra_ca: str = Field(
        "",
        description="File with CA certificates for builds, apps and registries, with the usual ones. Default for "
        "builds: the bundle of the system; `SSL_CERT_FILE` names another.",
    )
    function_pool: int = Field(
        4, ge=0, le=256, description="Idle sandboxes per Python version in use; half as many for Node."
    )
    function_instances: int = Field(100, ge=1, le=10_000, description="Maximum instances of one function.")
    organization_instances: int = Field(1000, ge=1, le=100_000, description="Maximum instances of one organization.")
    function_queue: int = Field(
        1000, ge=0, le=100_000, description="Calls of one function that may wait for an instance; more are refused."
    )
    function_log_mb: int = Field(
        100, ge=16, le=2**20, description="Stored logs of one function; the oldest are deleted first."
    )
    organization_log_mb: int = Field(
        1024, ge=16, le=2**20, description="Stored logs of all functions of one organization."
    )
    function_spool_mb: int = Field(
        512, ge=64, le=2**20, description="Spool of call records; above half of it, records have no logs."
    )
    builds: int = Field(0, ge=0, le=256, description="Concurrent builds. Default: by cores and free memory.")
    build_memory_mb: int = Field(2048, ge=128, description="Memory limit of one build.")
    build_minutes: int = Field(15, ge=1, le=240, description="Time limit of one build in minutes.")
    app_start_s: int = Field(120, ge=1, le=3600, description="Seconds in which a started app must become healthy.")
    app_idle_minutes: int = Field(
        30,
        ge=1,
        le=10_080,
        description="Minutes without requests after which an app of the free tier is stopped until the next request.",
    )
    cronjob_runs: int = Field(0, ge=0, le=10_000, description="Concurrent runs of cronjobs. Default: four per core.")
    cronjob_minutes: int = Field(60, ge=1, le=1440, description="Time limit of one cronjob run in minutes.")
    monitor_checks: int = Field(
        500, ge=1, le=100_000, description="Concurrent checks of one process; more are delayed."
    )
    monitor_canary: str = Field(
        "",
        pattern=r"^(\S+:[0-9]{1,5})?$",
        description="An address, `host:port`, that should always be reachable from this machine. While it is not, "
        "checks that cannot reach their target are not counted.",
    )
    database_host: str = Field(
        "",
        description="Public name or address of database servers. Default: the apps domain in production, else "
        "`127.0.0.1`.",
    )
    trash_days: int = Field(7, ge=0, le=365, description="Days that deleted databases and volumes stay in the trash.")
    releases_to_keep: int = Field(10, ge=1, le=1000, description="Releases of a project to keep for rollbacks.")
    git_push_mb: int = Field(256, ge=1, description="Largest push to the built-in git server.")
    repository_mb: int = Field(1024, ge=1, description="Largest repository, here or at the code host.")
    workers: int = Field(4, ge=1, le=256, description="Concurrent jobs in each lane of a process.")

    # Access.
    rate_limit: int = Field(300, ge=1, description="Requests per minute of a valid token, or else of an address.")
    streams_per_token: int = Field(50, ge=1, description="Open event streams of one token.")
    streams_per_organization: int = Field(200, ge=1, description="Open event streams of one organization.")
    signup: Signup = Field(Signup.OPEN, description="`open`, `approval` or `closed`.")
    session_hours: int = Field(24, ge=1, le=8760, description="Lifetime of a session token in hours.")
    oidc_issuers: tuple[str, ...] = Field(
        (), description="OpenID issuers that are accepted for logins, comma-separated."
    )
    oidc_audience: tuple[str, ...] = Field(
        (), description="Accepted audiences (client ids) of ID tokens, comma-separated."
    )
    oidc_client_secret: SecretStr = Field(
        SecretStr(""), description="Secret of the first client id, for a provider that exchanges no code without one."
    )
    console_origins: tuple[str, ...] = Field(
        (), description="Additional web origins that may call the API, comma-separated."
    )
    trusted_proxies: tuple[str, ...] = Field(
        (), description="Addresses or networks of reverse proxies with a trusted `X-Forwarded-For`, comma-separated."
    )
    allow_private_targets: bool | None = Field(
        None,
        description="Whether users' URLs may reach private and loopback addresses; link-local addresses and metadata "
        "services of clouds stay blocked. Default: loopback only, in development.",
    )
    body_timeout_s: float = Field(30, gt=0, le=3600, description="Longest pause in a request body, in seconds.")

    # Keys.
    master_key: SecretStr = Field(
        SecretStr(""),
        description="Key that encrypts secrets: 32 random bytes, hex or base64. Several, comma-separated: the first "
        "encrypts, all decrypt.",
    )
    session_secret: SecretStr = Field(
        SecretStr(""), description="Key that signs session tokens and cursors: 32 random bytes, hex or base64."
    )

    # External services.
    billing: Billing = Field(Billing.NONE, description="`none`, `manual` or `stripe`.")
    stripe_webhook_secret: SecretStr = Field(SecretStr(""), description="Signing secret of Stripe's webhook.")
    stripe_portal_url: str = Field("", description="Link to Stripe's customer portal, in `/v1/billing`.")
    github_webhook_secret: SecretStr = Field(SecretStr(""), description="Signing secret of the GitHub app's webhook.")
    codehost_url: str = Field("https://github.com", description="Address of the code host.")
    codehost_api_url: str = Field("https://api.github.com", description="Address of the code host's API.")
    github_app_id: str = Field("", description="Id of the GitHub app that reads private repositories.")
    github_app_key: SecretStr = Field(SecretStr(""), description="Private key of the GitHub app, as PEM text.")
    github_client_id: str = Field(
        "", description="OAuth client id of the GitHub app, with which organizations connect their GitHub accounts."
    )
    github_client_secret: SecretStr = Field(SecretStr(""), description="OAuth client secret of the GitHub app.")
    resolver: str = Field(
        "", description="DNS resolver for the verification of domains, `host:port`. Default: the system's."
    )
    clamd: str = Field("", description="Socket or `host:port` of a ClamAV daemon that also scans uploads.")
    smtp_url: SecretStr = Field(
        SecretStr(""), description="Mail server: `smtp://user:password@host:587` or `smtps://…`."
    )
    mail_from: str = Field("Moorage <moorage@localhost>", description="Sender of the platform's mails.")
    otlp_endpoint: str = Field("", description="OpenTelemetry collector (OTLP over HTTP) for spans.")
    log_format: str = Field("auto", pattern="^(auto|json|text)$", description="`json`, `text`, or `auto` by terminal.")
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$", description="Minimum level of log lines.")
    log_requests: bool = Field(False, description="Show requests and jobs on a terminal; `logs/control.log` has them.")

    @field_validator(
        "oidc_issuers",
        "oidc_audience",
        "console_origins",
        "trusted_proxies",
        "sandbox_allow",
        "sandbox_block",
        "registry_mirrors",
        "machine_labels",
        mode="before",
    )
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("oidc_issuers")
    @classmethod
    def _issuers_are_safe(cls, issuers: tuple[str, ...]) -> tuple[str, ...]:
        for issuer in issuers:
            url = urlsplit(issuer)
            if url.scheme == "https" and url.hostname:
                continue
            if url.scheme == "http" and is_loopback(url.hostname or ""):
                continue
            raise ValueError(f"{issuer} should be https, or http on loopback")
        return issuers

    @field_validator("trusted_proxies", "sandbox_allow", "sandbox_block")
    @classmethod
    def _proxies_are_networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            ipaddress.ip_network(proxy, strict=False)
        return proxies

    @field_validator("registry_mirrors")
    @classmethod
    def _mirrors_are_rules(cls, rules: tuple[str, ...]) -> tuple[str, ...]:
        registry_mirrors.parse(rules)
        return rules

    @field_validator("database_url")
    @classmethod
    def _database_is_known(cls, url: SecretStr) -> SecretStr:
        scheme = urlsplit(url.get_secret_value()).scheme
        if scheme not in ("", "postgresql", "postgres"):
            raise ValueError("should start with postgresql://")
        return url

    @field_validator("artifacts_url")
    @classmethod
    def _artifacts_are_known(cls, url: str) -> str:
        if url and not url.startswith("s3://"):
            raise ValueError("should start with s3://")
        return url

    @field_validator("engine")
    @classmethod
    def _engine_exists(cls, engine: Engine) -> Engine:
        if engine is Engine.DOCKER:
            raise ValueError("there is no engine docker; use local, which runs images and Dockerfiles without Docker")
        return engine

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        if self.engine is Engine.KUBERNETES and not self.registry_url:
            raise ValueError("MOORAGE_REGISTRY_URL: is needed with MOORAGE_ENGINE=kubernetes; the nodes pull from it")
        endpoint = urlsplit(self.artifacts_endpoint)
        if endpoint.scheme == "http" and not (self.artifacts_allow_http or is_loopback(endpoint.hostname or "")):
            raise ValueError(PLAIN_ARTIFACTS)
        if self.orders_certificate and not self.https_port:
            raise ValueError(
                "MOORAGE_HTTPS_PORT: is needed with MOORAGE_DNS_UPDATE_SERVER; the gateway uses no "
                "certificate without it"
            )
        if self.orders_certificate and ("." not in self.apps_domain or is_loopback(self.apps_domain)):
            raise ValueError(
                "MOORAGE_APPS_DOMAIN: is needed with MOORAGE_DNS_UPDATE_SERVER; a certificate authority "
                "issues only for public domains"
            )
        return self

    @field_validator("functions_domain")
    @classmethod
    def _functions_have_hosts(cls, domain: str) -> str:
        return function_hosts.check_domain(domain) if domain else ""

    @model_validator(mode="before")
    @classmethod
    def _empty_means_default(cls, values: Any) -> Any:
        # `MOORAGE_X=` in a unit file means "not set".
        return {key: value for key, value in values.items() if value != ""}

    @model_validator(mode="after")
    def _production_has_keys(self) -> Self:
        for name in ("master_key", "session_secret"):
            secret: SecretStr = getattr(self, name)
            variable = f"MOORAGE_{name.upper()}"
            if not secret.get_secret_value():
                if self.mode is Mode.PRODUCTION:
                    raise ValueError(f"{variable}: is needed in production; make one with: moorage keys generate")
                continue
            keys = secret.get_secret_value().split(",") if name == "master_key" else [secret.get_secret_value()]
            for key in keys:
                if problem := weakness(key):
                    raise ValueError(f"{variable}: {problem}; make one with: moorage keys generate")
        if self.oidc_issuers and not self.oidc_audience:
            raise ValueError("MOORAGE_OIDC_AUDIENCE: is needed with MOORAGE_OIDC_ISSUERS")
        if self.oidc_client_secret.get_secret_value() and len(self.oidc_issuers) != 1:
            raise ValueError("MOORAGE_OIDC_CLIENT_SECRET: needs exactly one issuer in MOORAGE_OIDC_ISSUERS")
        return self

    @model_validator(mode="after")
    def _functions_are_apart_from_projects(self) -> Self:
        if self.functions_domain and self.functions_domain == self.domain.lower() != function_hosts.LOCAL:
            raise ValueError(
                "MOORAGE_FUNCTIONS_DOMAIN: should not be MOORAGE_APPS_DOMAIN, whose subdomains are projects; "
                f"edge.{self.domain} would do"
            )
        return self

    @property
    def is_production(self) -> bool:
        return self.mode is Mode.PRODUCTION

    @property
    def api_url(self) -> str:
        return (self.base_url or f"http://localhost:{self.api_port}").rstrip("/")

    @property
    def functions_url(self) -> str:
        return (self.edge_url or f"http://localhost:{self.edge_port}").rstrip("/")

    @property
    def function_hosts_domain(self) -> str:
        """Domain of organizations' hosts for functions; empty for an IP address."""
        return function_hosts.domain_of(
            self.functions_domain, self.edge_url, self.apps_domain, is_production=self.is_production
        )

    @property
    def domain(self) -> str:
        return self.apps_domain or "localhost"

    @property
    def substitution(self) -> Substitution:
        if self.engine_substitution is not None:
            return self.engine_substitution
        return Substitution.MINOR if self.is_production else Substitution.ANY

    @property
    def offers_databases(self) -> bool:
        """Whether database servers can run: on folders of this machine, or as pods of an image."""
        return self.engine is Engine.LOCAL or bool(self.database_image)

    @property
    def uses_postgres(self) -> bool:
        return bool(self.database_url.get_secret_value())

    @property
    def targets(self) -> TargetPolicy:
        """Policy for addresses that users' URLs may reach."""
        allow = self.allow_private_targets
        return TargetPolicy(
            allow_loopback=not self.is_production if allow is None else allow,
            allow_private=bool(allow),
            extra_blocked=self.sandbox_block,
            public_ports=self.public_ports,
        )

    @property
    def public_ports(self) -> frozenset[int]:
        """Ports of the platform's public sites, also through a proxy on this machine."""
        ports = {self.gateway_port, self.https_port, _port_of(self.api_url), _port_of(self.functions_url)}
        if self.is_production:
            ports |= {80, 443}  # A proxy may serve the gateway's sites at the default ports.
        return frozenset(port for port in ports if port)

    @property
    def edge_control_socket(self) -> Path:
        """Unix socket on which the edge of this machine accepts calls from the platform."""
        return Path(self.edge_socket) if self.edge_socket else self.folder("run") / "edge.sock"

    def folder(self, name: str) -> Path:
        """Return a subfolder of the data folder, created by `moorage.cli.folders`."""
        return self.data / name


def _port_of(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load(**overrides: Any) -> Settings:
    """Read the settings from the environment and flags; raises BadSettings."""
    variables = {name: os.environ.get(f"MOORAGE_{name.upper()}", "") for name in Settings.model_fields}
    given = {name: value for name, value in variables.items() if value}
    try:
        settings = Settings(**(given | overrides))
    except ValidationError as error:
        raise BadSettings(explain(error)) from None
    return settings.model_copy(update={"data": settings.data.expanduser().absolute()})


def explain(error: ValidationError) -> str:
    """Format the problems as lines with the name of the variable and its problem."""
    return "\n".join(f"MOORAGE_{name.upper()}: {text}" if name else text for name, text in error.problems)


def as_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a child process, with variables for the same settings."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("MOORAGE_")}
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        if isinstance(value, tuple):
            value = ",".join(value)
        if isinstance(value, bool):
            value = "1" if value else "0"
        if value is not None:
            env[f"MOORAGE_{name.upper()}"] = str(value)
    return env
