"""The API server of the tests answers the calls of the engine as a real one did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deploy.rendering import permissions
from tests.runtime.engines.kubernetes.api_server import LabCluster
from tests.runtime.engines.kubernetes.recorded import recording, story

from moorage.runtime.engines.kubernetes.client import Cluster

pytestmark = pytest.mark.anyio

IMAGE = "127.0.0.1:9/contract:latest"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabCluster]:
    (tmp_path / "main.py").write_text(story.SOURCE)
    made = LabCluster()
    made.kubelet.images[IMAGE] = tmp_path
    made.allowed = permissions()
    yield made
    made.close()


async def test_the_api_server_of_the_tests_answers_as_the_recorded_one(lab: LabCluster) -> None:
    client, looking = (Cluster.connect(str(lab.kubeconfig), patience_s=5.0) for _ in range(2))
    with recording.recorded(client) as recorder:
        await story.tell(client, looking, recorder.note, IMAGE, "/app")
    await client.close()
    await looking.close()

    expected = json.loads(recording.RECORD.read_text())
    differing = [
        (number, there, here)
        for number, (there, here) in enumerate(zip(expected, recorder.exchanges, strict=False))
        if there != here
    ]
    assert differing == []
    assert len(recorder.exchanges) == len(expected)
