"""All models of the API. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorage.client.model import CursorPage as CursorPage
    from moorage.client.model import Page as Page
    from moorage.client.models.cronjobs import BuildLogs as BuildLogs
    from moorage.client.models.cronjobs import CreateCronjobInput as CreateCronjobInput
    from moorage.client.models.cronjobs import CronjobDetail as CronjobDetail
    from moorage.client.models.cronjobs import CronjobExecution as CronjobExecution
    from moorage.client.models.cronjobs import CronjobListItem as CronjobListItem
    from moorage.client.models.cronjobs import CronjobMutationResult as CronjobMutationResult
    from moorage.client.models.cronjobs import ExecutionLogs as ExecutionLogs
    from moorage.client.models.cronjobs import LogLine as LogLine
    from moorage.client.models.cronjobs import RunStats as RunStats
    from moorage.client.models.cronjobs import TriggerCronjobResult as TriggerCronjobResult
    from moorage.client.models.cronjobs import UpdateCronjobInput as UpdateCronjobInput
    from moorage.client.models.databases import BackupConfig as BackupConfig
    from moorage.client.models.databases import BackupItem as BackupItem
    from moorage.client.models.databases import ChangeTierInput as ChangeTierInput
    from moorage.client.models.databases import ConnectionDetails as ConnectionDetails
    from moorage.client.models.databases import CreateDatabaseInput as CreateDatabaseInput
    from moorage.client.models.databases import DatabaseBackups as DatabaseBackups
    from moorage.client.models.databases import DatabaseConnectionStrings as DatabaseConnectionStrings
    from moorage.client.models.databases import DatabaseContainer as DatabaseContainer
    from moorage.client.models.databases import DatabaseCredentials as DatabaseCredentials
    from moorage.client.models.databases import DatabaseDetail as DatabaseDetail
    from moorage.client.models.databases import DatabaseEngineMetricsPoint as DatabaseEngineMetricsPoint
    from moorage.client.models.databases import DatabaseEngineMetricsSummary as DatabaseEngineMetricsSummary
    from moorage.client.models.databases import DatabaseEngineMetricsTimeseries as DatabaseEngineMetricsTimeseries
    from moorage.client.models.databases import DatabaseExtension as DatabaseExtension
    from moorage.client.models.databases import DatabaseExtensions as DatabaseExtensions
    from moorage.client.models.databases import DatabaseListItem as DatabaseListItem
    from moorage.client.models.databases import DatabaseMetrics as DatabaseMetrics
    from moorage.client.models.databases import DatabaseQueryColumn as DatabaseQueryColumn
    from moorage.client.models.databases import DatabaseQueryInput as DatabaseQueryInput
    from moorage.client.models.databases import DatabaseQueryResult as DatabaseQueryResult
    from moorage.client.models.databases import DatabaseTable as DatabaseTable
    from moorage.client.models.databases import DatabaseTableColumn as DatabaseTableColumn
    from moorage.client.models.databases import DatabaseTableDetail as DatabaseTableDetail
    from moorage.client.models.databases import DatabaseTableIndex as DatabaseTableIndex
    from moorage.client.models.databases import DatabaseTables as DatabaseTables
    from moorage.client.models.databases import Deleted as Deleted
    from moorage.client.models.databases import Done as Done
    from moorage.client.models.databases import RestoreDatabaseInput as RestoreDatabaseInput
    from moorage.client.models.databases import ServerDetails as ServerDetails
    from moorage.client.models.databases import UpdateBackupsInput as UpdateBackupsInput
    from moorage.client.models.deployments import DeployInput as DeployInput
    from moorage.client.models.deployments import DeploymentActor as DeploymentActor
    from moorage.client.models.deployments import DeploymentOut as DeploymentOut
    from moorage.client.models.deployments import DeploymentRef as DeploymentRef
    from moorage.client.models.deployments import DeploymentStarted as DeploymentStarted
    from moorage.client.models.deployments import DeploymentStatusInfo as DeploymentStatusInfo
    from moorage.client.models.deployments import PreviewOut as PreviewOut
    from moorage.client.models.deployments import RollbackInput as RollbackInput
    from moorage.client.models.deployments import SwapOut as SwapOut
    from moorage.client.models.domains import AddCustomDomainInput as AddCustomDomainInput
    from moorage.client.models.domains import CertificateStatus as CertificateStatus
    from moorage.client.models.domains import CustomDomain as CustomDomain
    from moorage.client.models.domains import DnsRecord as DnsRecord
    from moorage.client.models.domains import DomainDeleted as DomainDeleted
    from moorage.client.models.domains import DomainStatus as DomainStatus
    from moorage.client.models.functions import CreateFunctionForm as CreateFunctionForm
    from moorage.client.models.functions import EnvOut as EnvOut
    from moorage.client.models.functions import FunctionDetail as FunctionDetail
    from moorage.client.models.functions import FunctionEnvVar as FunctionEnvVar
    from moorage.client.models.functions import FunctionFile as FunctionFile
    from moorage.client.models.functions import FunctionFiles as FunctionFiles
    from moorage.client.models.functions import FunctionInvocation as FunctionInvocation
    from moorage.client.models.functions import FunctionListItem as FunctionListItem
    from moorage.client.models.functions import FunctionMetrics as FunctionMetrics
    from moorage.client.models.functions import FunctionRollbackInput as FunctionRollbackInput
    from moorage.client.models.functions import FunctionSecretUpsert as FunctionSecretUpsert
    from moorage.client.models.functions import FunctionToken as FunctionToken
    from moorage.client.models.functions import FunctionVersion as FunctionVersion
    from moorage.client.models.functions import InvokeFunctionInput as InvokeFunctionInput
    from moorage.client.models.functions import InvokeFunctionResult as InvokeFunctionResult
    from moorage.client.models.functions import RevealedSecret as RevealedSecret
    from moorage.client.models.functions import RevealInput as RevealInput
    from moorage.client.models.functions import SecretName as SecretName
    from moorage.client.models.functions import UpdateFunctionInput as UpdateFunctionInput
    from moorage.client.models.github import ConnectInstallationInput as ConnectInstallationInput
    from moorage.client.models.github import InstallationOut as InstallationOut
    from moorage.client.models.github import SetupBegun as SetupBegun
    from moorage.client.models.identity import Account as Account
    from moorage.client.models.identity import AccountInput as AccountInput
    from moorage.client.models.identity import BeginSignInInput as BeginSignInInput
    from moorage.client.models.identity import BegunSignIn as BegunSignIn
    from moorage.client.models.identity import CreatedToken as CreatedToken
    from moorage.client.models.identity import CreateTokenInput as CreateTokenInput
    from moorage.client.models.identity import DemoLogin as DemoLogin
    from moorage.client.models.identity import ExchangeCodeInput as ExchangeCodeInput
    from moorage.client.models.identity import ExchangedCode as ExchangedCode
    from moorage.client.models.identity import LoginResult as LoginResult
    from moorage.client.models.identity import LoginUser as LoginUser
    from moorage.client.models.identity import MarkedRead as MarkedRead
    from moorage.client.models.identity import Me as Me
    from moorage.client.models.identity import MyOrganization as MyOrganization
    from moorage.client.models.identity import NotificationOut as NotificationOut
    from moorage.client.models.identity import RevokedSession as RevokedSession
    from moorage.client.models.identity import SessionOut as SessionOut
    from moorage.client.models.identity import SetupInput as SetupInput
    from moorage.client.models.identity import SignInMethods as SignInMethods
    from moorage.client.models.identity import SignInProvider as SignInProvider
    from moorage.client.models.identity import SocialLoginInput as SocialLoginInput
    from moorage.client.models.identity import TokenItem as TokenItem
    from moorage.client.models.identity import Whoami as Whoami
    from moorage.client.models.monitors import AlertDeleted as AlertDeleted
    from moorage.client.models.monitors import AlertDelivery as AlertDelivery
    from moorage.client.models.monitors import AlertNotifications as AlertNotifications
    from moorage.client.models.monitors import AlertOut as AlertOut
    from moorage.client.models.monitors import AlertTest as AlertTest
    from moorage.client.models.monitors import BucketOut as BucketOut
    from moorage.client.models.monitors import CreateAlertInput as CreateAlertInput
    from moorage.client.models.monitors import CreateMonitorInput as CreateMonitorInput
    from moorage.client.models.monitors import DisabledChannels as DisabledChannels
    from moorage.client.models.monitors import HeaderInput as HeaderInput
    from moorage.client.models.monitors import HeaderOut as HeaderOut
    from moorage.client.models.monitors import HeartbeatOut as HeartbeatOut
    from moorage.client.models.monitors import IncidentOut as IncidentOut
    from moorage.client.models.monitors import MonitorAggregate as MonitorAggregate
    from moorage.client.models.monitors import MonitorDeleted as MonitorDeleted
    from moorage.client.models.monitors import MonitorOut as MonitorOut
    from moorage.client.models.monitors import MonitorSsl as MonitorSsl
    from moorage.client.models.monitors import NotificationsInput as NotificationsInput
    from moorage.client.models.monitors import ObservedOut as ObservedOut
    from moorage.client.models.monitors import SomeNotificationsInput as SomeNotificationsInput
    from moorage.client.models.monitors import UpdateAlertInput as UpdateAlertInput
    from moorage.client.models.monitors import UpdateMonitorInput as UpdateMonitorInput
    from moorage.client.models.operator import MachineDisk as MachineDisk
    from moorage.client.models.operator import MachineMemory as MachineMemory
    from moorage.client.models.operator import OperatorDisk as OperatorDisk
    from moorage.client.models.operator import OperatorJob as OperatorJob
    from moorage.client.models.operator import OperatorMachine as OperatorMachine
    from moorage.client.models.operator import OperatorOrganization as OperatorOrganization
    from moorage.client.models.operator import OperatorOrganizationDetail as OperatorOrganizationDetail
    from moorage.client.models.operator import OperatorProcess as OperatorProcess
    from moorage.client.models.operator import OperatorQueue as OperatorQueue
    from moorage.client.models.operator import OperatorQueues as OperatorQueues
    from moorage.client.models.operator import OperatorUser as OperatorUser
    from moorage.client.models.operator import RemovedMachine as RemovedMachine
    from moorage.client.models.operator import UpdateMachineInput as UpdateMachineInput
    from moorage.client.models.operator import UpdateTenantInput as UpdateTenantInput
    from moorage.client.models.operator import UpdateUserInput as UpdateUserInput
    from moorage.client.models.organizations import ActivityActor as ActivityActor
    from moorage.client.models.organizations import ActivityOut as ActivityOut
    from moorage.client.models.organizations import ActivityTarget as ActivityTarget
    from moorage.client.models.organizations import ActivityToken as ActivityToken
    from moorage.client.models.organizations import BillingStatus as BillingStatus
    from moorage.client.models.organizations import InvitationInput as InvitationInput
    from moorage.client.models.organizations import InvitationOut as InvitationOut
    from moorage.client.models.organizations import Limits as Limits
    from moorage.client.models.organizations import MemberInput as MemberInput
    from moorage.client.models.organizations import MemberOut as MemberOut
    from moorage.client.models.organizations import OrganizationInput as OrganizationInput
    from moorage.client.models.organizations import OrganizationOut as OrganizationOut
    from moorage.client.models.organizations import TierOut as TierOut
    from moorage.client.models.organizations import UpdateOrganizationInput as UpdateOrganizationInput
    from moorage.client.models.organizations import Usage as Usage
    from moorage.client.models.organizations import Used as Used
    from moorage.client.models.organizations import WebhookSecret as WebhookSecret
    from moorage.client.models.platform import Health as Health
    from moorage.client.models.projects import AnalyticsBucket as AnalyticsBucket
    from moorage.client.models.projects import AnalyticsTotals as AnalyticsTotals
    from moorage.client.models.projects import AppLogLine as AppLogLine
    from moorage.client.models.projects import AppLogLines as AppLogLines
    from moorage.client.models.projects import AutoInput as AutoInput
    from moorage.client.models.projects import AutoScaling as AutoScaling
    from moorage.client.models.projects import AutoScalingInput as AutoScalingInput
    from moorage.client.models.projects import CommandResult as CommandResult
    from moorage.client.models.projects import ContainerInput as ContainerInput
    from moorage.client.models.projects import CreateProjectInput as CreateProjectInput
    from moorage.client.models.projects import CreateProjectResult as CreateProjectResult
    from moorage.client.models.projects import DeletedProject as DeletedProject
    from moorage.client.models.projects import EnvVar as EnvVar
    from moorage.client.models.projects import LatestDeployment as LatestDeployment
    from moorage.client.models.projects import MetricsItem as MetricsItem
    from moorage.client.models.projects import MetricsTotals as MetricsTotals
    from moorage.client.models.projects import NameAvailability as NameAvailability
    from moorage.client.models.projects import ProjectAnalytics as ProjectAnalytics
    from moorage.client.models.projects import ProjectDetail as ProjectDetail
    from moorage.client.models.projects import ProjectListItem as ProjectListItem
    from moorage.client.models.projects import ProjectMetrics as ProjectMetrics
    from moorage.client.models.projects import RenameInput as RenameInput
    from moorage.client.models.projects import RepositoryItem as RepositoryItem
    from moorage.client.models.projects import RunCommandInput as RunCommandInput
    from moorage.client.models.projects import SecretUpsert as SecretUpsert
    from moorage.client.models.projects import StaticInput as StaticInput
    from moorage.client.models.projects import TierDetail as TierDetail
    from moorage.client.models.projects import TierInput as TierInput
    from moorage.client.models.projects import ToggleInput as ToggleInput
    from moorage.client.models.projects import TopPath as TopPath
    from moorage.client.models.projects import TopReferrer as TopReferrer
    from moorage.client.models.projects import UpdateProjectInput as UpdateProjectInput
    from moorage.client.models.projects import UploadForm as UploadForm
    from moorage.client.models.projects import UploadResult as UploadResult
    from moorage.client.models.registries import CreateRegistryInput as CreateRegistryInput
    from moorage.client.models.registries import RegistryDeleted as RegistryDeleted
    from moorage.client.models.registries import RegistryOut as RegistryOut
    from moorage.client.models.registries import UpdateRegistryInput as UpdateRegistryInput
    from moorage.client.models.rules import HeaderRule as HeaderRule
    from moorage.client.models.rules import HeaderRuleInput as HeaderRuleInput
    from moorage.client.models.rules import RedirectRule as RedirectRule
    from moorage.client.models.rules import RedirectRuleInput as RedirectRuleInput
    from moorage.client.models.rules import SetHeadersInput as SetHeadersInput
    from moorage.client.models.rules import SetRedirectsInput as SetRedirectsInput
    from moorage.client.models.rules import TriedHeader as TriedHeader
    from moorage.client.models.rules import TriedRedirect as TriedRedirect
    from moorage.client.models.rules import TriedRules as TriedRules
    from moorage.client.models.rules import TryRulesInput as TryRulesInput
    from moorage.client.models.schedules import CreateScheduledFunctionInput as CreateScheduledFunctionInput
    from moorage.client.models.schedules import CronPreview as CronPreview
    from moorage.client.models.schedules import CronRun as CronRun
    from moorage.client.models.schedules import ScheduledFunction as ScheduledFunction
    from moorage.client.models.schedules import UpdateScheduledFunctionInput as UpdateScheduledFunctionInput
    from moorage.client.models.webhooks import Received as Received
_HOMES = {
    "Account": "moorage.client.models.identity",
    "AccountInput": "moorage.client.models.identity",
    "ActivityActor": "moorage.client.models.organizations",
    "ActivityOut": "moorage.client.models.organizations",
    "ActivityTarget": "moorage.client.models.organizations",
    "ActivityToken": "moorage.client.models.organizations",
    "AddCustomDomainInput": "moorage.client.models.domains",
    "AlertDeleted": "moorage.client.models.monitors",
    "AlertDelivery": "moorage.client.models.monitors",
    "AlertNotifications": "moorage.client.models.monitors",
    "AlertOut": "moorage.client.models.monitors",
    "AlertTest": "moorage.client.models.monitors",
    "AnalyticsBucket": "moorage.client.models.projects",
    "AnalyticsTotals": "moorage.client.models.projects",
    "AppLogLine": "moorage.client.models.projects",
    "AppLogLines": "moorage.client.models.projects",
    "AutoInput": "moorage.client.models.projects",
    "AutoScaling": "moorage.client.models.projects",
    "AutoScalingInput": "moorage.client.models.projects",
    "BackupConfig": "moorage.client.models.databases",
    "BackupItem": "moorage.client.models.databases",
    "BeginSignInInput": "moorage.client.models.identity",
    "BegunSignIn": "moorage.client.models.identity",
    "BillingStatus": "moorage.client.models.organizations",
    "BucketOut": "moorage.client.models.monitors",
    "BuildLogs": "moorage.client.models.cronjobs",
    "CertificateStatus": "moorage.client.models.domains",
    "ChangeTierInput": "moorage.client.models.databases",
    "CommandResult": "moorage.client.models.projects",
    "ConnectInstallationInput": "moorage.client.models.github",
    "ConnectionDetails": "moorage.client.models.databases",
    "ContainerInput": "moorage.client.models.projects",
    "CreateAlertInput": "moorage.client.models.monitors",
    "CreateCronjobInput": "moorage.client.models.cronjobs",
    "CreateDatabaseInput": "moorage.client.models.databases",
    "CreateFunctionForm": "moorage.client.models.functions",
    "CreateMonitorInput": "moorage.client.models.monitors",
    "CreateProjectInput": "moorage.client.models.projects",
    "CreateProjectResult": "moorage.client.models.projects",
    "CreateRegistryInput": "moorage.client.models.registries",
    "CreateScheduledFunctionInput": "moorage.client.models.schedules",
    "CreateTokenInput": "moorage.client.models.identity",
    "CreatedToken": "moorage.client.models.identity",
    "CronPreview": "moorage.client.models.schedules",
    "CronRun": "moorage.client.models.schedules",
    "CronjobDetail": "moorage.client.models.cronjobs",
    "CronjobExecution": "moorage.client.models.cronjobs",
    "CronjobListItem": "moorage.client.models.cronjobs",
    "CronjobMutationResult": "moorage.client.models.cronjobs",
    "CursorPage": "moorage.client.model",
    "CustomDomain": "moorage.client.models.domains",
    "DatabaseBackups": "moorage.client.models.databases",
    "DatabaseConnectionStrings": "moorage.client.models.databases",
    "DatabaseContainer": "moorage.client.models.databases",
    "DatabaseCredentials": "moorage.client.models.databases",
    "DatabaseDetail": "moorage.client.models.databases",
    "DatabaseEngineMetricsPoint": "moorage.client.models.databases",
    "DatabaseEngineMetricsSummary": "moorage.client.models.databases",
    "DatabaseEngineMetricsTimeseries": "moorage.client.models.databases",
    "DatabaseExtension": "moorage.client.models.databases",
    "DatabaseExtensions": "moorage.client.models.databases",
    "DatabaseListItem": "moorage.client.models.databases",
    "DatabaseMetrics": "moorage.client.models.databases",
    "DatabaseQueryColumn": "moorage.client.models.databases",
    "DatabaseQueryInput": "moorage.client.models.databases",
    "DatabaseQueryResult": "moorage.client.models.databases",
    "DatabaseTable": "moorage.client.models.databases",
    "DatabaseTableColumn": "moorage.client.models.databases",
    "DatabaseTableDetail": "moorage.client.models.databases",
    "DatabaseTableIndex": "moorage.client.models.databases",
    "DatabaseTables": "moorage.client.models.databases",
    "Deleted": "moorage.client.models.databases",
    "DeletedProject": "moorage.client.models.projects",
    "DemoLogin": "moorage.client.models.identity",
    "DeployInput": "moorage.client.models.deployments",
    "DeploymentActor": "moorage.client.models.deployments",
    "DeploymentOut": "moorage.client.models.deployments",
    "DeploymentRef": "moorage.client.models.deployments",
    "DeploymentStarted": "moorage.client.models.deployments",
    "DeploymentStatusInfo": "moorage.client.models.deployments",
    "DisabledChannels": "moorage.client.models.monitors",
    "DnsRecord": "moorage.client.models.domains",
    "DomainDeleted": "moorage.client.models.domains",
    "DomainStatus": "moorage.client.models.domains",
    "Done": "moorage.client.models.databases",
    "EnvOut": "moorage.client.models.functions",
    "EnvVar": "moorage.client.models.projects",
    "ExchangeCodeInput": "moorage.client.models.identity",
    "ExchangedCode": "moorage.client.models.identity",
    "ExecutionLogs": "moorage.client.models.cronjobs",
    "FunctionDetail": "moorage.client.models.functions",
    "FunctionEnvVar": "moorage.client.models.functions",
    "FunctionFile": "moorage.client.models.functions",
    "FunctionFiles": "moorage.client.models.functions",
    "FunctionInvocation": "moorage.client.models.functions",
    "FunctionListItem": "moorage.client.models.functions",
    "FunctionMetrics": "moorage.client.models.functions",
    "FunctionRollbackInput": "moorage.client.models.functions",
    "FunctionSecretUpsert": "moorage.client.models.functions",
    "FunctionToken": "moorage.client.models.functions",
    "FunctionVersion": "moorage.client.models.functions",
    "HeaderInput": "moorage.client.models.monitors",
    "HeaderOut": "moorage.client.models.monitors",
    "HeaderRule": "moorage.client.models.rules",
    "HeaderRuleInput": "moorage.client.models.rules",
    "Health": "moorage.client.models.platform",
    "HeartbeatOut": "moorage.client.models.monitors",
    "IncidentOut": "moorage.client.models.monitors",
    "InstallationOut": "moorage.client.models.github",
    "InvitationInput": "moorage.client.models.organizations",
    "InvitationOut": "moorage.client.models.organizations",
    "InvokeFunctionInput": "moorage.client.models.functions",
    "InvokeFunctionResult": "moorage.client.models.functions",
    "LatestDeployment": "moorage.client.models.projects",
    "Limits": "moorage.client.models.organizations",
    "LogLine": "moorage.client.models.cronjobs",
    "LoginResult": "moorage.client.models.identity",
    "LoginUser": "moorage.client.models.identity",
    "MachineDisk": "moorage.client.models.operator",
    "MachineMemory": "moorage.client.models.operator",
    "MarkedRead": "moorage.client.models.identity",
    "Me": "moorage.client.models.identity",
    "MemberInput": "moorage.client.models.organizations",
    "MemberOut": "moorage.client.models.organizations",
    "MetricsItem": "moorage.client.models.projects",
    "MetricsTotals": "moorage.client.models.projects",
    "MonitorAggregate": "moorage.client.models.monitors",
    "MonitorDeleted": "moorage.client.models.monitors",
    "MonitorOut": "moorage.client.models.monitors",
    "MonitorSsl": "moorage.client.models.monitors",
    "MyOrganization": "moorage.client.models.identity",
    "NameAvailability": "moorage.client.models.projects",
    "NotificationOut": "moorage.client.models.identity",
    "NotificationsInput": "moorage.client.models.monitors",
    "ObservedOut": "moorage.client.models.monitors",
    "OperatorDisk": "moorage.client.models.operator",
    "OperatorJob": "moorage.client.models.operator",
    "OperatorMachine": "moorage.client.models.operator",
    "OperatorOrganization": "moorage.client.models.operator",
    "OperatorOrganizationDetail": "moorage.client.models.operator",
    "OperatorProcess": "moorage.client.models.operator",
    "OperatorQueue": "moorage.client.models.operator",
    "OperatorQueues": "moorage.client.models.operator",
    "OperatorUser": "moorage.client.models.operator",
    "OrganizationInput": "moorage.client.models.organizations",
    "OrganizationOut": "moorage.client.models.organizations",
    "Page": "moorage.client.model",
    "PreviewOut": "moorage.client.models.deployments",
    "ProjectAnalytics": "moorage.client.models.projects",
    "ProjectDetail": "moorage.client.models.projects",
    "ProjectListItem": "moorage.client.models.projects",
    "ProjectMetrics": "moorage.client.models.projects",
    "Received": "moorage.client.models.webhooks",
    "RedirectRule": "moorage.client.models.rules",
    "RedirectRuleInput": "moorage.client.models.rules",
    "RegistryDeleted": "moorage.client.models.registries",
    "RegistryOut": "moorage.client.models.registries",
    "RemovedMachine": "moorage.client.models.operator",
    "RenameInput": "moorage.client.models.projects",
    "RepositoryItem": "moorage.client.models.projects",
    "RestoreDatabaseInput": "moorage.client.models.databases",
    "RevealInput": "moorage.client.models.functions",
    "RevealedSecret": "moorage.client.models.functions",
    "RevokedSession": "moorage.client.models.identity",
    "RollbackInput": "moorage.client.models.deployments",
    "RunCommandInput": "moorage.client.models.projects",
    "RunStats": "moorage.client.models.cronjobs",
    "ScheduledFunction": "moorage.client.models.schedules",
    "SecretName": "moorage.client.models.functions",
    "SecretUpsert": "moorage.client.models.projects",
    "ServerDetails": "moorage.client.models.databases",
    "SessionOut": "moorage.client.models.identity",
    "SetHeadersInput": "moorage.client.models.rules",
    "SetRedirectsInput": "moorage.client.models.rules",
    "SetupBegun": "moorage.client.models.github",
    "SetupInput": "moorage.client.models.identity",
    "SignInMethods": "moorage.client.models.identity",
    "SignInProvider": "moorage.client.models.identity",
    "SocialLoginInput": "moorage.client.models.identity",
    "SomeNotificationsInput": "moorage.client.models.monitors",
    "StaticInput": "moorage.client.models.projects",
    "SwapOut": "moorage.client.models.deployments",
    "TierDetail": "moorage.client.models.projects",
    "TierInput": "moorage.client.models.projects",
    "TierOut": "moorage.client.models.organizations",
    "ToggleInput": "moorage.client.models.projects",
    "TokenItem": "moorage.client.models.identity",
    "TopPath": "moorage.client.models.projects",
    "TopReferrer": "moorage.client.models.projects",
    "TriedHeader": "moorage.client.models.rules",
    "TriedRedirect": "moorage.client.models.rules",
    "TriedRules": "moorage.client.models.rules",
    "TriggerCronjobResult": "moorage.client.models.cronjobs",
    "TryRulesInput": "moorage.client.models.rules",
    "UpdateAlertInput": "moorage.client.models.monitors",
    "UpdateBackupsInput": "moorage.client.models.databases",
    "UpdateCronjobInput": "moorage.client.models.cronjobs",
    "UpdateFunctionInput": "moorage.client.models.functions",
    "UpdateMachineInput": "moorage.client.models.operator",
    "UpdateMonitorInput": "moorage.client.models.monitors",
    "UpdateOrganizationInput": "moorage.client.models.organizations",
    "UpdateProjectInput": "moorage.client.models.projects",
    "UpdateRegistryInput": "moorage.client.models.registries",
    "UpdateScheduledFunctionInput": "moorage.client.models.schedules",
    "UpdateTenantInput": "moorage.client.models.operator",
    "UpdateUserInput": "moorage.client.models.operator",
    "UploadForm": "moorage.client.models.projects",
    "UploadResult": "moorage.client.models.projects",
    "Usage": "moorage.client.models.organizations",
    "Used": "moorage.client.models.organizations",
    "WebhookSecret": "moorage.client.models.organizations",
    "Whoami": "moorage.client.models.identity",
}


def __getattr__(name: str) -> Any:
    """Import the module of a model on first use: a command needs few of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
