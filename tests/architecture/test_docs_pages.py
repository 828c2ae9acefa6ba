"""Every hand-written page says which question it answers, and where to go next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page for folder in ("tutorial", "how-to", "explanation") for page in (DOCS / folder).glob("*.md"))


def problems(text: str) -> list[str]:
    """Return the parts that a page lacks."""
    blocks = text.strip().split("\n\n")
    found = []
    if re.fullmatch(r"\*I want to [^*]+\.\*", blocks[1] if len(blocks) > 1 else "") is None:
        found.append("a question in the first paragraph: *I want to ….*")
    if re.match(r"Next: (?:the )?\[[^\]]+\]\([^)]+\)", blocks[-1]) is None:
        found.append("a last paragraph with the next page: Next: [title](page.md)")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_opens_with_its_question_and_ends_with_the_next_page(page: Path) -> None:
    assert problems(page.read_text(encoding="utf-8")) == []


def test_a_page_without_question_or_next_page_is_found() -> None:
    assert len(problems("# Title\n\nText.\n")) == 2
    assert problems("# Title\n\n*I want to sail.*\n\nText.\n\nNext: [the sea](sea.md).\n") == []


def test_the_pages_are_found() -> None:
    assert len(PAGES) > 25
