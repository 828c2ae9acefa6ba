"""All groups of the API, asynchronous. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from moorage.client.api_async.cronjobs import AsyncCronjobs
from moorage.client.api_async.databases import AsyncDatabases
from moorage.client.api_async.deployments import AsyncDeployments
from moorage.client.api_async.domains import AsyncDomains
from moorage.client.api_async.functions import AsyncFunctions
from moorage.client.api_async.github import AsyncGithub
from moorage.client.api_async.identity import AsyncIdentity
from moorage.client.api_async.monitors import AsyncMonitors
from moorage.client.api_async.operator import AsyncOperator
from moorage.client.api_async.organizations import AsyncOrganizations
from moorage.client.api_async.platform import AsyncPlatform
from moorage.client.api_async.projects import AsyncProjects
from moorage.client.api_async.rules import AsyncRules
from moorage.client.api_async.schedules import AsyncSchedules
from moorage.client.asynchronous import AsyncTransport


class AsyncGroups:
    """One attribute for each group of routes."""

    def __init__(self, transport: AsyncTransport) -> None:
        self.identity = AsyncIdentity(transport)
        self.organizations = AsyncOrganizations(transport)
        self.functions = AsyncFunctions(transport)
        self.schedules = AsyncSchedules(transport)
        self.projects = AsyncProjects(transport)
        self.deployments = AsyncDeployments(transport)
        self.domains = AsyncDomains(transport)
        self.rules = AsyncRules(transport)
        self.github = AsyncGithub(transport)
        self.databases = AsyncDatabases(transport)
        self.cronjobs = AsyncCronjobs(transport)
        self.monitors = AsyncMonitors(transport)
        self.operator = AsyncOperator(transport)
        self.platform = AsyncPlatform(transport)
