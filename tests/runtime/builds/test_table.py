"""Every row of the table of detectors, by a small repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.builds.build_support import make_request, write_files
from tests.runtime.builds.detection_case import Case
from tests.runtime.builds.detection_cases import CASES

from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.detection.table import ROWS
from moorage.runtime.builds.ports import BuildFailed


def test_every_row_of_the_table_has_a_case() -> None:
    assert {row.name for row in ROWS} == {case.row for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.row)
def test_a_repository_gets_the_plan_of_its_row(tmp_path: Path, case: Case) -> None:
    write_files(tmp_path, case.files)
    request = make_request(tmp_path, wanted=case.wanted)
    folder = detect.open_base(request)

    if case.refusal:
        with pytest.raises(BuildFailed) as failed:
            detect.make_plan(request, folder)
        assert case.refusal in str(failed.value)
        assert "\n" not in str(failed.value)
        return
    decision = detect.decide(request, folder)

    plan, kind = decision.plan, "container" if case.start or case.row == "Dockerfile" else "static"
    assert (plan.framework, plan.kind) == (case.row, kind)
    assert (plan.build, plan.output_dir, plan.server) == (case.build, case.output, case.server)
    assert plan.start.startswith(case.start)
    assert decision.match is not None
    assert decision.match.why
