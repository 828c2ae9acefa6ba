"""Pages below the base folder of a repository that is nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import make_request, write_files

from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.ports import BuildFailed, Plan

PAGE = "<!DOCTYPE html><title>Ahoy</title>"


def plan_of(folder: Path, files: dict[str, Any]) -> tuple[str, Plan]:
    request = make_request(write_files(folder, files), wanted="auto")
    found = detect.open_base(request)
    return found.base, detect.make_plan(request, found)


@pytest.mark.parametrize("place", ["harbor-main", "code/harbor"])
def test_the_only_page_below_the_base_folder_is_published(tmp_path: Path, place: str) -> None:
    files = {"README.md": "x", f"{place}/index.html": PAGE, "drafts/notes.txt": "x"}

    base, plan = plan_of(tmp_path, files)

    assert (base, plan.kind, plan.output_dir) == (place, "static", "")
    assert f"the only app is in {place}, which is deployed; baseDir chooses another folder" in plan.notes


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (
            {"clock/index.html": PAGE, "quiz/index.html": PAGE},
            "there are several sites, in clock, quiz: set baseDir to the folder of one",
        ),
        (
            {"home.html": PAGE, "style.css": "x"},
            "the base folder has home.html and no index.html: rename the page to index.html",
        ),
        ({"templates/index.html": PAGE}, "cannot tell what this project is"),
        ({"pages/index.html": "<html>{% block main %}</html>"}, "cannot tell what this project is"),
        ({"parts/index.html": "<li>Ahoy</li>"}, "cannot tell what this project is"),
        ({"site/pom.xml": "x", "site/web/index.html": PAGE}, "the folder site has an app that cannot be built"),
    ],
)
def test_pages_that_are_no_site_fail_with_a_sentence(tmp_path: Path, files: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BuildFailed) as failure:
        plan_of(tmp_path, files)

    assert str(failure.value).startswith(sentence)
