"""Sizes, reported; beyond the outer bounds they fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from tests.architecture.source import SRC, functions, modules

pytestmark = pytest.mark.group("architecture")  # one process reads the source, and not each of them

FILE_LINES = 500
FUNCTION_LINES = 60
FOLDER_MODULES = 16


def test_no_file_is_longer_than_five_hundred_lines() -> None:
    lengths = {path.relative_to(SRC): len(path.read_text().splitlines()) for path in modules()}

    assert {str(path): length for path, length in lengths.items() if length > FILE_LINES} == {}


def test_no_function_is_longer_than_sixty_lines() -> None:
    long = {}
    for path in modules():
        if "migrations" in path.parts or {"api", "api_async"} & set(path.parts):  # generated: one line per argument
            continue
        for function in functions(path):
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if length > FUNCTION_LINES:
                long[f"{path.relative_to(SRC)}:{function.name}"] = length

    assert long == {}


def test_nine_functions_in_ten_are_short(record_property: Callable[[str, object], None]) -> None:
    lengths = sorted(
        (function.end_lineno or function.lineno) - function.lineno + 1
        for path in modules()
        if "migrations" not in path.parts
        for function in functions(path)
    )
    ninth = lengths[len(lengths) * 9 // 10]
    record_property("functions", len(lengths))
    record_property("median_lines", lengths[len(lengths) // 2])

    assert ninth <= 35


def test_no_folder_has_more_than_sixteen_modules() -> None:
    counts = Counter(
        str(path.parent.relative_to(SRC))
        for path in modules()
        if path.name != "__init__.py" and path.parent.name != "versions"  # one revision for each change of the schema
    )

    assert {folder: count for folder, count in counts.items() if count > FOLDER_MODULES} == {}
