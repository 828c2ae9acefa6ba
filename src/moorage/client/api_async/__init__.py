"""All groups of the API, asynchronous. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from moorage.client.api_async.registries import AsyncRegistries
    from moorage.client.api_async.rules import AsyncRules
    from moorage.client.api_async.schedules import AsyncSchedules
    from moorage.client.asynchronous import AsyncTransport


class AsyncGroups:
    """One attribute for each group of routes, imported on first use."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._groups_transport = transport

    @cached_property
    def identity(self) -> AsyncIdentity:
        from moorage.client.api_async.identity import AsyncIdentity

        return AsyncIdentity(self._groups_transport)

    @cached_property
    def organizations(self) -> AsyncOrganizations:
        from moorage.client.api_async.organizations import AsyncOrganizations

        return AsyncOrganizations(self._groups_transport)

    @cached_property
    def registries(self) -> AsyncRegistries:
        from moorage.client.api_async.registries import AsyncRegistries

        return AsyncRegistries(self._groups_transport)

    @cached_property
    def functions(self) -> AsyncFunctions:
        from moorage.client.api_async.functions import AsyncFunctions

        return AsyncFunctions(self._groups_transport)

    @cached_property
    def schedules(self) -> AsyncSchedules:
        from moorage.client.api_async.schedules import AsyncSchedules

        return AsyncSchedules(self._groups_transport)

    @cached_property
    def projects(self) -> AsyncProjects:
        from moorage.client.api_async.projects import AsyncProjects

        return AsyncProjects(self._groups_transport)

    @cached_property
    def deployments(self) -> AsyncDeployments:
        from moorage.client.api_async.deployments import AsyncDeployments

        return AsyncDeployments(self._groups_transport)

    @cached_property
    def domains(self) -> AsyncDomains:
        from moorage.client.api_async.domains import AsyncDomains

        return AsyncDomains(self._groups_transport)

    @cached_property
    def rules(self) -> AsyncRules:
        from moorage.client.api_async.rules import AsyncRules

        return AsyncRules(self._groups_transport)

    @cached_property
    def github(self) -> AsyncGithub:
        from moorage.client.api_async.github import AsyncGithub

        return AsyncGithub(self._groups_transport)

    @cached_property
    def databases(self) -> AsyncDatabases:
        from moorage.client.api_async.databases import AsyncDatabases

        return AsyncDatabases(self._groups_transport)

    @cached_property
    def cronjobs(self) -> AsyncCronjobs:
        from moorage.client.api_async.cronjobs import AsyncCronjobs

        return AsyncCronjobs(self._groups_transport)

    @cached_property
    def monitors(self) -> AsyncMonitors:
        from moorage.client.api_async.monitors import AsyncMonitors

        return AsyncMonitors(self._groups_transport)

    @cached_property
    def operator(self) -> AsyncOperator:
        from moorage.client.api_async.operator import AsyncOperator

        return AsyncOperator(self._groups_transport)

    @cached_property
    def platform(self) -> AsyncPlatform:
        from moorage.client.api_async.platform import AsyncPlatform

        return AsyncPlatform(self._groups_transport)
