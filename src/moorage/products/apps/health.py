"""Health rule of apps: which answers are healthy, and when a wrong one is final.

The reconciler, the check through the gateway and the probes during a switch all use this rule.
"""

from __future__ import annotations

from collections.abc import Container

from moorage.core.db.tx import Tx
from moorage.core.kit.records import dataclass
from moorage.products.apps import probing
from moorage.products.apps.probing import WrongAnswer
from moorage.products.projects import service as projects
from moorage.products.projects import tables as project_tables
from moorage.runtime.engines.ports import Address

DEFAULT_PATH = "/"  # stored for a project whose owner chose no path
# An API without a page at "/" answers 404 or 401 there: without a path of its owner's choice, this is healthy.
ACCEPTED_BY_DEFAULT = range(200, 500)
ACCEPTED = range(200, 400)
NOT_FOUND, NOT_READY = 404, 503
# Seconds for which the same wrong answer may repeat. Apps answer 503 and other server errors while they warm up.
NOT_READY_S, SERVER_ERROR_S, WRONG_ANSWER_S = 60.0, 30.0, 10.0


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """Health check of one app, as its project is configured."""

    path: str
    host: str  # name under which visitors reach the app

    @property
    def accepted(self) -> range:
        return ACCEPTED_BY_DEFAULT if self.path == DEFAULT_PATH else ACCEPTED

    @property
    def accepted_at_probe_host(self) -> Container[int]:
        """Statuses that prove the route of a release that is not live yet.

        An app that checks the Host header refuses the name of the probe. The gateway answers 404 as well.
        """
        return self.accepted if self.path == DEFAULT_PATH else frozenset(ACCEPTED_BY_DEFAULT) - {NOT_FOUND}

    async def check(self, address: Address, timeout_s: float = probing.RESPONSE_TIMEOUT_S) -> str | None:
        """Return None if the app at an address is healthy, else the reason."""
        return await probing.check(address, self.path, self.host, timeout_s, accepted=self.accepted)

    def explain(self, problem: str) -> str:
        """Add the rule to a wrong answer, so that its owner can change the right setting."""
        if not isinstance(problem, WrongAnswer):
            return problem
        if self.path == DEFAULT_PATH:
            return f"{problem}; a status below 500 is healthy, and healthCheckPath may name another path than /"
        return f"{problem}; healthCheckPath has to answer 2xx or 3xx (set it to another path, or to / to accept 4xx)"


def read(tx: Tx, org_id: int, project_id: int, preview_id: int | None) -> HealthCheck:
    project = projects.get_by_id(tx, org_id, project_id)
    name = project.name
    if preview_id is not None:
        preview = tx.find(project_tables.FIND_PREVIEW_BY_ID, org_id=org_id, id=preview_id)
        name = preview.name if preview is not None else name
    return HealthCheck(project.health_check_path or DEFAULT_PATH, projects.host_of(tx.env.settings, name))


class Steadiness:
    """Finds out that an app keeps giving the same wrong answer."""

    def __init__(self) -> None:
        self._answer: WrongAnswer | None = None
        self._since = 0.0

    def is_final(self, problem: str, now: float) -> bool:
        """Record the result of a check; whether this answer has repeated for too long."""
        if not isinstance(problem, WrongAnswer):
            self._answer = None
            return False
        if problem != self._answer:
            self._answer, self._since = problem, now
        return now - self._since >= _patience_s(problem.status)


def _patience_s(status: int) -> float:
    if status == NOT_READY:
        return NOT_READY_S
    return SERVER_ERROR_S if status >= 500 else WRONG_ANSWER_S
