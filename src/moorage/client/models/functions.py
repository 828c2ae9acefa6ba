"""Models of the group functions. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from moorage.client.model import List, Model


class FunctionListItem(Model, kw_only=True):
    id: int
    name: str
    runtime: str
    current_version: int
    endpoint: str
    created_at: str
    updated_at: str


class FunctionToken(Model, kw_only=True):
    token: str


class FunctionDetail(Model, kw_only=True):
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
    env: List[EnvOut]
    created_at: str
    updated_at: str
    network: str
    raw_http: bool
    handle_options: bool
    url: str
    sandbox: str
    status: str | None = None


class EnvOut(Model, kw_only=True):
    name: str
    value: str


class FunctionVersion(Model, kw_only=True):
    id: int
    function_id: int
    version: int
    current: bool
    created_at: str
    updated_at: str


class FunctionFiles(Model, kw_only=True):
    version: int
    main: str
    files: List[FunctionFile]
    truncated: bool


class FunctionFile(Model, kw_only=True):
    path: str
    size_bytes: int
    text: str | None


class SecretName(Model, kw_only=True):
    name: str


class RevealedSecret(Model, kw_only=True):
    name: str
    value: str


class InvokeFunctionResult(Model, kw_only=True):
    status: str
    result: Any
    error: str | None
    duration_ms: float
    version: int
    activation_id: str


class FunctionInvocation(Model, kw_only=True):
    id: int
    duration: float
    status: str
    error: str | None
    stdout: str
    stderr: str
    timestamp: str
    activation_id: str
    version: int
    door: str
    wait_ms: float
    cold_start: bool
    logs_cut: bool
    logs_dropped: bool


class FunctionMetrics(Model, kw_only=True):
    """Parallel lists with one element for each bucket."""

    timestamps: List[str]
    invocations: List[int]
    errors: List[int]
    latency: List[float | None]


class FunctionEnvVar(Model, kw_only=True):
    name: str
    value: str


class CreateFunctionForm(Model, kw_only=True):
    name: str
    # `nodejs` or `python`, or one of them with a version that is installed.
    runtime: str | msgspec.UnsetType = msgspec.UNSET
    # Milliseconds.
    timeout: int | msgspec.UnsetType = msgspec.UNSET
    # MB.
    memory: int | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType = msgspec.UNSET
    # JSON text.
    env: List[FunctionEnvVar] | msgspec.UnsetType = msgspec.UNSET
    # JSON text. Never returned.
    secrets: List[FunctionEnvVar] | msgspec.UnsetType = msgspec.UNSET
    network: Literal["internet", "none"] | msgspec.UnsetType = msgspec.UNSET
    raw_http: bool | msgspec.UnsetType = msgspec.UNSET
    handle_options: bool | msgspec.UnsetType = msgspec.UNSET


class FunctionSecretUpsert(Model, kw_only=True):
    name: str
    value: str | msgspec.UnsetType = msgspec.UNSET


class UpdateFunctionInput(Model, kw_only=True):
    # Milliseconds.
    timeout: int | msgspec.UnsetType = msgspec.UNSET
    # MB.
    memory: int | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType | None = msgspec.UNSET
    env: List[FunctionEnvVar] | msgspec.UnsetType = msgspec.UNSET
    secrets: List[FunctionSecretUpsert] | msgspec.UnsetType = msgspec.UNSET
    network: Literal["internet", "none"] | msgspec.UnsetType = msgspec.UNSET
    raw_http: bool | msgspec.UnsetType = msgspec.UNSET
    handle_options: bool | msgspec.UnsetType = msgspec.UNSET


class FunctionRollbackInput(Model, kw_only=True):
    version: int


class RevealInput(Model, kw_only=True):
    name: str


InvokeFunctionInput = Any
