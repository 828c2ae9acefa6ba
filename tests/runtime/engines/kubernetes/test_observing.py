"""States and sentences from what a cluster reports, and the position in a log."""

from __future__ import annotations

from typing import Any

import pytest
from tests.runtime.engines.kubernetes.manifest_cases import PLACE, app, run

from moorage.runtime.engines.kubernetes import manifests, observing
from moorage.runtime.engines.kubernetes.following import LogPosition
from moorage.runtime.engines.kubernetes.manifests import Manifest

CREATED = "2026-01-02T03:04:05Z"
META = {"uid": "0a1b2c3d-0000-0000-0000-000000000000", "creationTimestamp": CREATED}


def owner(*, is_run: bool = False, **status: Any) -> Manifest:
    made = manifests.job(run(timeout_s=90), PLACE) if is_run else manifests.deployment(app(), PLACE)
    return {**made, "metadata": {**made["metadata"], **META}, "status": status}


def pod(state: Manifest, *, last: Manifest | None = None, restarts: int = 0, **status: Any) -> Manifest:
    container = {"state": state, "lastState": last or {}, "restartCount": restarts}
    found = {"podIP": "10.1.2.3", "containerStatuses": [container], **status}
    return {"metadata": {**META, "name": "r17-x"}, "spec": manifests.pod_spec(app(), PLACE), "status": found}


def ended(code: int, reason: str = "Error") -> Manifest:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": CREATED}}


def waiting(reason: str, message: str = "") -> Manifest:
    return {"waiting": {"reason": reason, "message": message}}


def observe(of: Manifest, its_pod: Manifest | None, *, is_listening: bool = False, is_log_complete: bool = True) -> Any:
    return observing.observe(of, its_pod, is_listening=is_listening, is_log_complete=is_log_complete)


def test_a_running_app_has_the_address_of_its_pod() -> None:
    state = observe(owner(), pod({"running": {"startedAt": CREATED}}), is_listening=True)

    assert (state.key, state.phase, state.is_listening, str(state.address)) == ("r17", "running", True, "10.1.2.3:8080")
    assert (state.pid, state.started) == (0x0A1B2C3D, 1767323045000)


def test_an_app_without_a_pod_starts() -> None:
    state = observe(owner(), None)

    assert (state.phase, state.reason, state.is_listening) == ("starting", None, False)


@pytest.mark.parametrize(
    ("its_pod", "phase", "reason"),
    [
        (pod(ended(3)), "waiting", "it ended with exit code 3"),
        (pod(ended(0, "Completed")), "waiting", "it ended with exit code 0"),
        (pod(ended(137)), "waiting", "it was ended by SIGKILL"),
        (pod(ended(255)), "waiting", "it was ended by signal 127"),
        (pod(ended(137, "OOMKilled")), "waiting", "it ran out of memory (256 MB)"),
        (pod(waiting("CrashLoopBackOff"), last=ended(7), restarts=4), "waiting", "it ended with exit code 7"),
        (pod({"running": {}}, last=ended(7), restarts=1), "running", "it ended with exit code 7"),
        (pod(waiting("ContainerCreating")), "starting", None),
    ],
)
def test_an_app_says_how_its_last_process_ended(its_pod: Manifest, phase: str, reason: str | None) -> None:
    state = observe(owner(), its_pod)

    assert (state.phase, state.reason) == (phase, reason)


@pytest.mark.parametrize(
    ("its_pod", "code", "reason"),
    [
        (pod(ended(0), phase="Succeeded"), 0, None),
        (pod(ended(5), phase="Failed"), 5, "it ended with exit code 5"),
        (pod(ended(137), phase="Failed", reason="DeadlineExceeded"), 137, "it took longer than 90 seconds"),
        (
            pod({}, phase="Failed", reason="Evicted", message="low on memory"),
            None,
            "ended by the cluster (low on memory)",
        ),
        (pod({}, phase="Failed"), None, "its pod was ended by the cluster"),
    ],
)
def test_a_run_that_ended_has_its_result(its_pod: Manifest, code: int | None, reason: str | None) -> None:
    state = observe(owner(is_run=True), its_pod)

    assert (state.phase, state.exit_code, state.is_once) == ("stopped", code, True)
    assert reason is None if state.reason is None else (reason or "") in state.reason


def test_a_run_has_not_ended_before_its_log_is_complete() -> None:
    its_pod = pod(ended(0), phase="Succeeded")

    phases = [observe(owner(is_run=True), its_pod, is_log_complete=done).phase for done in (False, True)]

    assert phases == ["running", "stopped"]


def scheduled(message: str) -> Manifest:
    return {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}


@pytest.mark.parametrize(
    ("its_pod", "text", "is_final"),
    [
        (pod(waiting("ErrImagePull", "not found")), "cannot be pulled (not found)", False),
        (pod(waiting("ImagePullBackOff", "denied")), "cannot be pulled (denied)", False),
        (pod(waiting("InvalidImageName", "bad")), "cannot be pulled (bad)", True),
        (pod(waiting("CreateContainerConfigError", 'secret "x" not found')), 'secret "x" not found', False),
        (pod(waiting("RunContainerError", "no such file")), "no such file", True),
        (pod(waiting("CrashLoopBackOff"), last=ended(128, "StartError"), restarts=1), "cannot be executed", True),
        (pod({}, conditions=[scheduled("0/3 nodes are available")]), "no node of the cluster has room", False),
        (
            pod({}, conditions=[scheduled("unbound immediate PersistentVolumeClaims")]),
            "its volume cannot be used",
            False,
        ),
    ],
)
def test_what_keeps_a_pod_from_running_is_a_sentence(its_pod: Manifest, text: str, is_final: bool) -> None:
    trouble = observing.find_trouble(owner(), its_pod)

    assert trouble is not None
    assert text in trouble.text
    assert trouble.is_final is is_final


@pytest.mark.parametrize("its_pod", [pod({"running": {}}), pod(waiting("ContainerCreating")), pod({}), None])
def test_a_pod_that_just_starts_is_in_no_trouble(its_pod: Manifest | None) -> None:
    assert observing.find_trouble(owner(), its_pod) is None


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ('pods "x" is forbidden: exceeded quota: organization', "the quota of the organization"),
        ('pods "x" is forbidden: violates PodSecurity', "the cluster does not permit its pod"),
    ],
)
def test_a_pod_that_cannot_be_created_is_a_sentence(message: str, text: str) -> None:
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}

    trouble = observing.find_trouble(owner(conditions=[condition]), None)

    assert trouble is not None
    assert text in trouble.text


def test_of_several_pods_the_newest_that_stays_stands_for_the_workload() -> None:
    old, new, going = (
        {"metadata": {"name": name, "creationTimestamp": time, **more}}
        for name, time, more in (
            ("old", "2026-01-01T00:00:00Z", {}),
            ("new", "2026-01-02T00:00:00Z", {}),
            ("going", "2026-01-03T00:00:00Z", {"deletionTimestamp": CREATED}),
        )
    )

    found = [observing.newest(each) for each in ([old, going, new], [going], [])]

    assert found == [new, going, None]


# The position in a log.


def test_lines_of_one_millisecond_are_all_new() -> None:
    position = LogPosition()

    assert [position.is_new(at) for at in (5, 5, 5, 6, 6)] == [True] * 5


def test_lines_that_a_reconnection_returns_again_are_not_new() -> None:
    position = LogPosition()
    for at in (5, 6, 6):
        position.is_new(at)
    position.reconnect()

    assert [position.is_new(at) for at in (5, 6, 6, 6, 7)] == [False, False, False, True, True]


def test_a_position_from_the_log_continues_after_it() -> None:
    position = LogPosition(6, 2)

    assert [position.is_new(at) for at in (6, 6, 6)] == [False, False, True]
    assert (LogPosition().since(), LogPosition(1767323045006, 1).since()) == (None, "2026-01-02T03:04:05.006Z")
