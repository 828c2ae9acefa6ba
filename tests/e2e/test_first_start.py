"""`make up` as a newcomer runs it: a new clone, an empty home folder, a path with a space."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import first_start


@pytest.mark.deep
def test_a_new_clone_starts_and_the_second_start_fetches_nothing(tmp_path: Path) -> None:
    measured = first_start.run(tmp_path, first_start.TINY)

    figures = {figure.name: figure.value for figure in measured}
    assert figures["first start: written by the setup, cold cache"] > 100
    assert figures["first start: second make up to ready, without network"] > 0
    assert sorted(path.name for path in (tmp_path / "my checkout").iterdir() if path.name.startswith(".v")) == [".venv"]
