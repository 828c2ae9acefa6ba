"""Request and response models of the function routes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, RootModel

from moorage.core.http import strictjson
from moorage.core.http.envvars import EnvLength, EnvName, EnvVar, SecretUpsert, check_env
from moorage.core.http.forms import Form, UploadedFile
from moorage.core.http.models import Input, Output, QueryInput, QueryInt, optional, validate
from moorage.core.http.waiting import WaitedStatus
from moorage.core.kit.clock import to_wire
from moorage.core.kit.envvars import EnvOut, env_text, read_env
from moorage.errors import BadRequest
from moorage.products.functions.addresses import url_of
from moorage.products.functions.edge_client import Outcome
from moorage.products.functions.service import NewFunction
from moorage.products.functions.sources import Sources
from moorage.products.functions.tables import Function, Version
from moorage.runtime.workers import runtimes
from moorage.settings import Settings

NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DEFAULT_RUNTIME = "nodejs"
FILES = ("code", "file")
_SWITCHES = {"true": True, "1": True, "false": False, "0": False}


def _env_name(name: str) -> str:
    if name.upper().startswith("__OW_"):
        raise ValueError("is reserved: names that start with __OW_ are set by the platform")
    return name


FunctionEnvName = Annotated[EnvName, AfterValidator(_env_name)]


class FunctionEnvVar(EnvVar):
    name: FunctionEnvName


class FunctionSecretUpsert(SecretUpsert):
    name: FunctionEnvName


def _runtime(name: str) -> str:
    runtime = runtimes.resolve(name)
    if runtime is None:
        raise ValueError(f"is not installed here; there is {', '.join(runtimes.installed())}")
    return runtime


def _switch(value: Any) -> Any:
    if isinstance(value, str):
        if value not in _SWITCHES:
            raise ValueError("should be true or false")
        return _SWITCHES[value]
    return value


Timeout = Annotated[int, Field(ge=1000, le=900_000, description="Milliseconds.")]
FormTimeout = Annotated[QueryInt, Field(ge=1000, le=900_000, description="Milliseconds.")]
Memory = Annotated[int, Field(ge=128, le=2048, description="MB.")]
FormMemory = Annotated[QueryInt, Field(ge=128, le=2048, description="MB.")]
Description = Annotated[str, Field(max_length=500)]
Env = Annotated[list[FunctionEnvVar], EnvLength, AfterValidator(check_env)]
Secrets = Annotated[list[FunctionSecretUpsert], EnvLength, AfterValidator(check_env)]
Network = Literal["internet", "none"]
Switch = Annotated[bool, BeforeValidator(_switch)]


class CreateFunctionForm(QueryInput):
    name: Annotated[str, Field(min_length=1, max_length=63, pattern=NAME)]
    runtime: Annotated[
        str,
        Field(description="`nodejs` or `python`, or one of them with a version that is installed."),
        AfterValidator(_runtime),
    ] = DEFAULT_RUNTIME
    timeout: FormTimeout = 60_000
    memory: FormMemory = 256
    description: Description = optional()
    env: Annotated[Env, Field(default_factory=list, description="JSON text.")]
    secrets: Annotated[Env, Field(default_factory=list, description="JSON text. Never returned.")]
    network: Network = "internet"
    raw_http: Switch = False
    handle_options: Switch = False

    def as_new(self) -> NewFunction:
        return NewFunction(
            name=self.name,
            runtime=self.runtime,
            timeout_ms=self.timeout,
            memory_mb=self.memory,
            description=self.description,
            env=env_text(self.env),
            network=self.network,
            raw_http=self.raw_http,
            own_options=self.handle_options,
            secrets={each.name: each.value for each in self.secrets},
        )


class UpdateFunctionInput(Input):
    timeout: Timeout = optional()
    memory: Memory = optional()
    description: Description | None = None
    env: Env = optional()
    secrets: Secrets = optional()
    network: Network = optional()
    raw_http: bool = optional()
    handle_options: bool = optional()

    def changes(self) -> dict[str, Any]:
        """Return the sent fields by column name, without `secrets`."""
        sent = self.sent()
        sent.pop("secrets", None)
        if "env" in sent:
            sent["env"] = env_text(self.env)
        return {_COLUMNS.get(name, name): value for name, value in sent.items()}

    def wanted_secrets(self) -> list[tuple[str, str | None]] | None:
        """Return the new set of secrets; a value of None keeps the stored value."""
        if "secrets" not in self.model_fields_set:
            return None
        return [(each.name, each.value if "value" in each.model_fields_set else None) for each in self.secrets]


_COLUMNS = {"timeout": "timeout_ms", "memory": "memory_mb", "handle_options": "own_options"}


class FunctionRollbackInput(Input):
    version: Annotated[int, Field(ge=1)]


class InvokeFunctionInput(RootModel[Any]):
    """The payload, any JSON value; or an object with the single key `params`."""

    @property
    def params(self) -> Any:
        sent = self.root
        is_envelope = isinstance(sent, dict) and list(sent) == ["params"] and isinstance(sent["params"], dict)
        return sent["params"] if is_envelope else sent


def read_create_form(form: Form) -> tuple[CreateFunctionForm, UploadedFile, str]:
    """Return the fields, the file and its field name; raises BadRequest."""
    # The default runtime is validated like a sent one: it may not be installed.
    values: dict[str, Any] = {"runtime": DEFAULT_RUNTIME, **form.fields}
    problems: dict[str, str] = {}
    for name in ("env", "secrets"):
        if name not in values:
            continue
        try:
            values[name] = strictjson.parse(values[name].encode())
        except BadRequest:
            problems[name] = "should be JSON: a list of objects with a name and a value"
            del values[name]
    if find_file(form) is None:
        problems[FILES[0]] = NO_FILE
    return validate(CreateFunctionForm, values, problems=problems), *get_file(form)


NO_FILE = "is required: a ZIP archive of the function's code"


def get_file(form: Form) -> tuple[UploadedFile, str]:
    """Return the archive and the name of its field; raises BadRequest."""
    name = find_file(form)
    if name is None:
        raise BadRequest("The request is not valid", fields={FILES[0]: NO_FILE})
    return form.files[name], name


def find_file(form: Form) -> str | None:
    return next((name for name in FILES if name in form.files), None)


class FunctionListItem(Output, frozen=True):
    id: int
    name: str
    runtime: str
    current_version: int
    endpoint: str
    created_at: str
    updated_at: str

    @classmethod
    def of(cls, function: Function) -> FunctionListItem:
        return cls(
            function.id,
            function.name,
            function.runtime,
            function.current_version,
            _endpoint(function),
            to_wire(function.created_at),
            to_wire(function.updated_at),
        )


class FunctionDetail(Output, frozen=True):
    id: int
    name: str
    runtime: str
    timeout: int
    memory: int
    organization_id: str
    current_version: int
    description: str | None
    namespace: str
    endpoint: str
    env: list[EnvOut]
    created_at: str
    updated_at: str
    network: Network
    raw_http: bool
    handle_options: bool
    url: str
    sandbox: str
    status: WaitedStatus = msgspec.UNSET  # `succeeded`: a failed deployment is an error

    @classmethod
    def of(cls, function: Function, env: str, settings: Settings, sandbox: str) -> FunctionDetail:
        return cls(
            id=function.id,
            name=function.name,
            runtime=function.runtime,
            timeout=function.timeout_ms,
            memory=function.memory_mb,
            organization_id=str(function.org_id),
            current_version=function.current_version,
            description=function.description,
            namespace=f"org-{function.org_id}",
            endpoint=_endpoint(function),
            env=read_env(env),
            created_at=to_wire(function.created_at),
            updated_at=to_wire(function.updated_at),
            network="none" if function.network == "none" else "internet",
            raw_http=function.raw_http,
            handle_options=function.own_options,
            url=url_of(settings, function.org_id, function.name),
            sandbox=sandbox,
        )


def _endpoint(function: Function) -> str:
    return f"/v1/functions/{function.name}/invoke"


class FunctionVersion(Output, frozen=True):
    id: int
    function_id: int
    version: int
    current: bool
    created_at: str
    updated_at: str

    @classmethod
    def of(cls, version: Version, function: Function) -> FunctionVersion:
        return cls(
            version.id,
            version.function_id,
            version.version,
            version.version == function.current_version,
            to_wire(version.created_at),
            to_wire(version.updated_at),
        )


class FunctionFile(Output, frozen=True):
    path: str
    size_bytes: int
    text: str | None


class FunctionFiles(Output, frozen=True):
    version: int
    main: str
    files: list[FunctionFile]
    truncated: bool

    @classmethod
    def of(cls, version: Version, sources: Sources) -> FunctionFiles:
        files = [FunctionFile(each.path, each.size_bytes, each.text) for each in sources.files]
        return cls(version.version, version.main, files, sources.is_cut)


class FunctionToken(Output, frozen=True):
    token: str


class InvokeFunctionResult(Output, frozen=True):
    status: Literal["success", "error"]
    result: msgspec.Raw
    error: str | None
    duration_ms: float
    version: int
    activation_id: str

    @classmethod
    def of(cls, outcome: Outcome) -> InvokeFunctionResult:
        return cls(
            outcome.status,
            outcome.result,
            outcome.error,
            outcome.duration_ms,
            outcome.version,
            outcome.activation_id,
        )
