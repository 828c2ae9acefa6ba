"""All models of the API. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorage.client.model import *  # noqa: F403
    from moorage.client.models.cronjobs import *  # noqa: F403
    from moorage.client.models.databases import *  # noqa: F403
    from moorage.client.models.deployments import *  # noqa: F403
    from moorage.client.models.domains import *  # noqa: F403
    from moorage.client.models.functions import *  # noqa: F403
    from moorage.client.models.github import *  # noqa: F403
    from moorage.client.models.identity import *  # noqa: F403
    from moorage.client.models.monitors import *  # noqa: F403
    from moorage.client.models.operator import *  # noqa: F403
    from moorage.client.models.organizations import *  # noqa: F403
    from moorage.client.models.platform import *  # noqa: F403
    from moorage.client.models.projects import *  # noqa: F403
    from moorage.client.models.registries import *  # noqa: F403
    from moorage.client.models.rules import *  # noqa: F403
    from moorage.client.models.schedules import *  # noqa: F403
    from moorage.client.models.webhooks import *  # noqa: F403

_NAMES = {
    "models.cronjobs": """
    BuildLogs CreateCronjobInput CronjobDetail CronjobExecution CronjobListItem CronjobMutationResult
    ExecutionLogs LogLine RunStats TriggerCronjobResult UpdateCronjobInput
    """,
    "models.databases": """
    BackupConfig BackupItem ChangeTierInput ConnectionDetails CreateDatabaseInput DatabaseBackups
    DatabaseConnectionStrings DatabaseContainer DatabaseCredentials DatabaseDetail DatabaseEngineMetricsPoint
    DatabaseEngineMetricsSummary DatabaseEngineMetricsTimeseries DatabaseExtension DatabaseExtensions
    DatabaseListItem DatabaseMetrics DatabaseQueryColumn DatabaseQueryInput DatabaseQueryResult DatabaseTable
    DatabaseTableColumn DatabaseTableDetail DatabaseTableIndex DatabaseTables Deleted Done
    RestoreDatabaseInput ServerDetails UpdateBackupsInput
    """,
    "models.deployments": """
    ApprovePreviewInput DeployInput DeploymentActor DeploymentOut DeploymentRef DeploymentStarted
    DeploymentStatusInfo PreviewOut RollbackInput SwapOut
    """,
    "models.domains": """
    AddCustomDomainInput CertificateStatus CustomDomain DnsRecord DomainDeleted DomainStatus
    """,
    "models.functions": """
    CreateFunctionForm EnvOut FunctionDetail FunctionEnvVar FunctionFile FunctionFiles FunctionInvocation
    FunctionListItem FunctionMetrics FunctionRollbackInput FunctionSecretUpsert FunctionToken FunctionVersion
    InvokeFunctionInput InvokeFunctionResult RevealInput RevealedSecret SecretName UpdateFunctionInput
    """,
    "models.github": """
    ConnectInstallationInput InstallationOut SetupBegun
    """,
    "models.identity": """
    Account AccountInput BeginSignInInput BegunSignIn CreateTokenInput CreatedToken DemoLogin
    ExchangeCodeInput ExchangedCode LoginResult LoginUser MarkedRead Me MyOrganization NotificationOut
    RevokedSession SessionOut SetupInput SignInMethods SignInProvider SocialLoginInput TokenItem Whoami
    """,
    "models.monitors": """
    AlertDeleted AlertDelivery AlertNotifications AlertOut AlertTest BucketOut CreateAlertInput
    CreateMonitorInput DisabledChannels HeaderInput HeaderOut HeartbeatOut IncidentOut MonitorAggregate
    MonitorDeleted MonitorOut MonitorSsl NotificationsInput ObservedOut SomeNotificationsInput
    UpdateAlertInput UpdateMonitorInput
    """,
    "models.operator": """
    MachineDisk MachineMemory OperatorDisk OperatorJob OperatorMachine OperatorOrganization
    OperatorOrganizationDetail OperatorProcess OperatorQueue OperatorQueues OperatorUser RemovedMachine
    UpdateMachineInput UpdateTenantInput UpdateUserInput
    """,
    "models.organizations": """
    ActivityActor ActivityOut ActivityTarget ActivityToken BillingStatus InvitationInput InvitationOut Limits
    MemberInput MemberOut OrganizationInput OrganizationOut TierOut UpdateOrganizationInput Usage Used
    WebhookSecret
    """,
    "models.platform": """
    Health
    """,
    "models.projects": """
    AnalyticsBucket AnalyticsTotals AppLogLine AppLogLines AutoInput AutoScaling AutoScalingInput
    CommandResult ContainerInput CreateProjectInput CreateProjectResult DeletedProject DetectInput
    DetectedPlan EnvVar LatestDeployment MetricsItem MetricsTotals NameAvailability ProjectAnalytics
    ProjectDetail ProjectListItem ProjectMetrics RenameInput RepositoryItem RunCommandInput SecretUpsert
    StaticInput TierDetail TierInput ToggleInput TopPath TopReferrer UpdateProjectInput UploadForm
    UploadResult
    """,
    "models.registries": """
    CreateRegistryInput RegistryDeleted RegistryOut UpdateRegistryInput
    """,
    "models.rules": """
    HeaderRule HeaderRuleInput RedirectRule RedirectRuleInput SetHeadersInput SetRedirectsInput TriedHeader
    TriedRedirect TriedRules TryRulesInput
    """,
    "models.schedules": """
    CreateScheduledFunctionInput CronPreview CronRun ScheduledFunction UpdateScheduledFunctionInput
    """,
    "models.webhooks": """
    Received
    """,
    "model": """
    CursorPage Page
    """,
}


def __getattr__(name: str) -> Any:
    """Import the module of a model on first use: a command needs few of them."""
    module = next((module for module, names in _NAMES.items() if name in names.split()), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    model = globals()[name] = getattr(import_module(f"moorage.client.{module}"), name)
    return model
