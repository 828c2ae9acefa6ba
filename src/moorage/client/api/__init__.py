"""All groups of the API, blocking. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

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
from moorage.client.api.rules import Rules
from moorage.client.api.schedules import Schedules
from moorage.client.blocking import BlockingTransport


class Groups:
    """One attribute for each group of routes."""

    def __init__(self, transport: BlockingTransport) -> None:
        self.identity = Identity(transport)
        self.organizations = Organizations(transport)
        self.functions = Functions(transport)
        self.schedules = Schedules(transport)
        self.projects = Projects(transport)
        self.deployments = Deployments(transport)
        self.domains = Domains(transport)
        self.rules = Rules(transport)
        self.github = Github(transport)
        self.databases = Databases(transport)
        self.cronjobs = Cronjobs(transport)
        self.monitors = Monitors(transport)
        self.operator = Operator(transport)
        self.platform = Platform(transport)
