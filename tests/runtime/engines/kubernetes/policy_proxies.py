"""Network of the cluster of the tests that enforces policies: a proxy at the address of each pod."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from tests.runtime.engines.kubernetes.api_store import Store

HIDDEN = 127  # added to the last number of an address


def hidden_address(address: str) -> str:
    """Return the address at which the process of a pod listens, behind its proxy."""
    network, _, number = address.rpartition(".")
    return f"{network}.{int(number) + HIDDEN}"


class PolicyProxies:
    """Listens at the address of a pod while a policy of its namespace permits connections."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.close_for_good = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, address: str, port: int, namespace: str) -> None:
        self._tasks.append(asyncio.create_task(self._run(address, port, namespace)))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _run(self, address: str, port: int, namespace: str) -> None:
        server: asyncio.Server | None = None
        try:
            while True:
                if self._is_open(namespace) and server is None:
                    server = await asyncio.start_server(partial(_forward, hidden_address(address), port), address, port)
                elif not self._is_open(namespace) and server is not None:
                    server.close()
                    server = None
                await asyncio.sleep(0.02)
        finally:
            if server is not None:
                server.close()

    def _is_open(self, namespace: str) -> bool:
        policies = [policy["spec"] for policy in self._store.all("NetworkPolicy", namespace)]
        of_ingress = [spec for spec in policies if "Ingress" in spec["policyTypes"]]
        return not self.close_for_good and (not of_ingress or any(spec.get("ingress") for spec in of_ingress))


async def _forward(host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Connect to the process; the probes of the tests send nothing."""
    with contextlib.suppress(OSError):
        _, to_pod = await asyncio.open_connection(host, port)
        to_pod.close()
    writer.close()
