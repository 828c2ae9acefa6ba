"""All groups of the API, blocking. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage.client.api.cronjobs import Cronjobs
    from moorage.client.api.databases import Databases
    from moorage.client.api.deployments import Deployments
    from moorage.client.api.domains import Domains
    from moorage.client.api.functions import Functions
    from moorage.client.api.github import Github
    from moorage.client.api.identity import Identity
    from moorage.client.api.monitors import Monitors
    from moorage.client.api.operator import Operator
    from moorage.client.api.organizations import Organizations
    from moorage.client.api.platform import Platform
    from moorage.client.api.projects import Projects
    from moorage.client.api.registries import Registries
    from moorage.client.api.rules import Rules
    from moorage.client.api.schedules import Schedules
    from moorage.client.blocking import BlockingTransport


class Groups:
    """One attribute for each group of routes, imported on first use."""

    def __init__(self, transport: BlockingTransport) -> None:
        self._groups_transport = transport

    @cached_property
    def identity(self) -> Identity:
        from moorage.client.api.identity import Identity

        return Identity(self._groups_transport)

    @cached_property
    def organizations(self) -> Organizations:
        from moorage.client.api.organizations import Organizations

        return Organizations(self._groups_transport)

    @cached_property
    def registries(self) -> Registries:
        from moorage.client.api.registries import Registries

        return Registries(self._groups_transport)

    @cached_property
    def functions(self) -> Functions:
        from moorage.client.api.functions import Functions

        return Functions(self._groups_transport)

    @cached_property
    def schedules(self) -> Schedules:
        from moorage.client.api.schedules import Schedules

        return Schedules(self._groups_transport)

    @cached_property
    def projects(self) -> Projects:
        from moorage.client.api.projects import Projects

        return Projects(self._groups_transport)

    @cached_property
    def deployments(self) -> Deployments:
        from moorage.client.api.deployments import Deployments

        return Deployments(self._groups_transport)

    @cached_property
    def domains(self) -> Domains:
        from moorage.client.api.domains import Domains

        return Domains(self._groups_transport)

    @cached_property
    def rules(self) -> Rules:
        from moorage.client.api.rules import Rules

        return Rules(self._groups_transport)

    @cached_property
    def github(self) -> Github:
        from moorage.client.api.github import Github

        return Github(self._groups_transport)

    @cached_property
    def databases(self) -> Databases:
        from moorage.client.api.databases import Databases

        return Databases(self._groups_transport)

    @cached_property
    def cronjobs(self) -> Cronjobs:
        from moorage.client.api.cronjobs import Cronjobs

        return Cronjobs(self._groups_transport)

    @cached_property
    def monitors(self) -> Monitors:
        from moorage.client.api.monitors import Monitors

        return Monitors(self._groups_transport)

    @cached_property
    def operator(self) -> Operator:
        from moorage.client.api.operator import Operator

        return Operator(self._groups_transport)

    @cached_property
    def platform(self) -> Platform:
        from moorage.client.api.platform import Platform

        return Platform(self._groups_transport)
