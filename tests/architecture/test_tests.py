"""The tests themselves: real parts, few patches, nothing skipped."""

from __future__ import annotations

import re
from pathlib import Path

from tests import order
from tests.architecture.source import ROOT


def sources() -> dict[str, str]:
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in (ROOT / "tests").rglob("test_*.py")
        if "node_modules" not in path.parts and "architecture" not in path.parts
    }


def test_at_most_one_test_in_ten_patches_anything() -> None:
    tests = patched = 0
    for text in sources().values():
        for body in re.split(r"^(?=(?:async )?def )", text, flags=re.MULTILINE):
            if re.match(r"(async )?def test_", body):
                tests += 1
                patched += bool(re.search(r"\bmonkeypatch\b|\bmock\b|MagicMock|unittest\.mock", body))

    assert tests > 100
    assert patched * 10 <= tests


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    marks = re.compile("pytest" + r"\.(mark\.(skip|skipif|xfail)|skip\(|xfail\()")

    assert [name for name, text in sources().items() if marks.search(text)] == []


def test_every_test_asserts_something() -> None:
    wrong = []
    for name, text in sources().items():
        for body in re.split(r"^(?=(?:async )?def |@pytest)", text, flags=re.MULTILINE):
            found = re.match(r"(?:async )?def (test_\w+)", body)
            if found and not re.search(r"\bassert\b|raises\(|until\(|expect|check_|wait_for\(|call_and_validate", body):
                wrong.append(f"{name}: {found[1]}")

    assert wrong == []


def test_nothing_that_outlives_a_test_is_made_in_its_event_loop() -> None:
    """All tests of a process would share one loop from then on, with whatever one of them did to it."""
    fixtures = re.compile(
        r"^@pytest\.fixture\([^)]*scope=\"(?:session|package|module|class)\"[^)]*\)\nasync def", re.MULTILINE
    )
    supporting = {
        str(path): path.read_text() for path in (ROOT / "tests").rglob("*.py") if "node_modules" not in path.parts
    }

    assert [name for name, text in supporting.items() if fixtures.search(text)] == []


def test_every_group_that_starts_early_exists() -> None:
    groups = set(re.findall(r"group\(\"([^\"]+)\"\)", "\n".join(sources().values())))
    files = {Path(name).stem for name in sources()}

    assert [name for name in order.LONGEST if name not in groups | files | {"architecture", "postgres"}] == []
