"""Hugo sites whose theme includes templates that newer versions removed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from moorage.runtime.builds.python import hugo

OUTPUT = 'ERROR error building site: html/template:list.html:45:18: no such template "_internal/google_news.html"\n'


def test_a_build_is_repeated_with_empty_templates(tmp_path: Path) -> None:
    command = f"{hugo.RETRY.prepare} && cat layouts/_internal/* && echo built"

    shown = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert hugo.RETRY.pattern.search(OUTPUT)
    assert shown == "built\n"
    assert sorted(path.name for path in (tmp_path / hugo.FOLDER).iterdir()) == sorted(hugo.REMOVED)


def test_a_missing_template_of_the_theme_stays_an_error() -> None:
    assert hugo.RETRY.pattern.search('no such template "partials/tides.html"') is None
