"""The page of the threat model lists every promise with its tests, and no boundary is without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.docs import threat_page
from moorage.docs.threat_page import BOUNDARIES, UnreadableMark


def test_every_boundary_has_promises_that_tests_prove() -> None:
    proofs = list(threat_page.read_proofs(threat_page.TESTS))

    assert {each.boundary for each in proofs} == set(BOUNDARIES)


def test_marks_of_a_module_and_of_a_test_are_read(tmp_path: Path) -> None:
    (tmp_path / "test_harbor.py").write_text(
        "import pytest\n"
        'PROMISE = "No one enters."\n'
        'pytestmark = [pytest.mark.deep, pytest.mark.boundary("code-to-host", PROMISE)]\n'
        "def test_one(): ...\n"
        '@pytest.mark.boundary("supply-chain", "Two " "parts.")\n'
        "async def test_two(): ...\n"
        "def helper(): ...\n"
    )

    page = threat_page.page(tmp_path)

    assert "- No one enters.\n  - [test_harbor.py](../../tests/test_harbor.py): `test_one`, `test_two`" in page
    assert "- Two parts.\n  - [test_harbor.py](../../tests/test_harbor.py): `test_two`" in page


@pytest.mark.parametrize("mark", ['"nowhere", "Text."', '"code-to-host"', '"code-to-host", "no dot"', "1, 2"])
def test_a_mark_that_cannot_be_read_is_named(tmp_path: Path, mark: str) -> None:
    (tmp_path / "test_x.py").write_text(f"import pytest\n@pytest.mark.boundary({mark})\ndef test_x(): ...\n")

    with pytest.raises(UnreadableMark, match=r"tests/test_x.py:2: boundary takes"):
        threat_page.page(tmp_path)
