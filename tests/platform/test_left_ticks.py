"""Which processes fire the ticks of schedules and cronjobs."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from moorage.platform.control import Control
from moorage.settings import Settings


def left_by(data: Path, **parts: bool) -> tuple[str, str]:
    control = Control(Settings(_env_file=None, data=data), **parts)
    with contextlib.closing(control.opened):
        return control.scheduler.skip


def test_a_process_for_jobs_leaves_cronjobs_to_the_one_that_runs_apps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = left_by(tmp_path, serves=False)
    monkeypatch.setenv("MOORAGE_READY_FD", "9")

    assert (alone, left_by(tmp_path)) == (("schedule", "cronjob"), ("", ""))
