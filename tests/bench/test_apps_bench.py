"""The benchmark of apps runs from end to end at tiny sizes. What it measures there means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import apps


@pytest.mark.bench
def test_every_bar_of_apps_is_measured_and_nothing_runs_on(tmp_path: Path) -> None:
    measured = apps.run(tmp_path, apps.TINY)

    barred = [figure.name for figure in measured if figure.bar is not None]
    counted = [figure.name for figure in measured if figure.value == 0]
    assert barred == [
        "apps: 3 redeploys at 20 requests/s: failed requests",
        "apps: rollback to live, p95",
        "apps: wake a small nodejs app, p95",
        "apps: wake a small python app, p95",
        "apps: SIGTERM of the control process, 2 apps: failed requests",
        "apps: SIGTERM of the control process, 2 apps: apps that were started anew",
        "apps: SIGTERM of the control process, 2 apps: start to all adopted, worst",
        "apps: SIGTERM of the control process, 2 apps: start to API answers, worst",
        "apps: SIGKILL of the control process, 2 apps: failed requests",
        "apps: SIGKILL of the control process, 2 apps: apps that were started anew",
        "apps: SIGKILL of the control process, 2 apps: start to all adopted, worst",
        "apps: SIGKILL of the control process, 2 apps: start to API answers, worst",
    ]
    assert all("failed" in name or "anew" in name for name in counted)
    assert not list((tmp_path / "data" / "run" / "shims").iterdir())
