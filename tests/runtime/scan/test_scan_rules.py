"""Each rule matches its samples, and no rule matches files that only resemble them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.runtime.scan.look_alikes import HARMLESS
from tests.runtime.scan.samples import BAD, Sample

from moorage.runtime.scan import matching
from moorage.runtime.scan.matching import Match, Matcher, TooSlow


def found_in(folder: Path, name: str, content: bytes) -> Match | None:
    return Matcher().find(write(folder, content), name, timeout_s=10)


def write(folder: Path, content: bytes) -> Path:
    file = folder / "sample"
    file.write_bytes(content)
    return file


def rule_ids() -> list[str]:
    return [found for text in matching.sources().values() for found in re.findall(r'\bid = "([a-z0-9-]+)"', text)]


@pytest.mark.parametrize("sample", BAD, ids=lambda sample: f"{sample.rule}:{sample.file}")
def test_a_bad_file_is_found_by_its_rule(sample: Sample, tmp_path: Path) -> None:
    found = found_in(tmp_path, sample.file, sample.content)

    assert found is not None
    assert found.rule == sample.rule


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_file_that_looks_like_a_bad_one_is_not_found(name: str, tmp_path: Path) -> None:
    assert found_in(tmp_path, name, HARMLESS[name]) is None


def test_a_file_that_is_made_to_be_slow_is_given_up_on(tmp_path: Path) -> None:
    with pytest.raises(TooSlow):
        Matcher().find(write(tmp_path, b"wget curl " * 3_000_000), "slow.sh", timeout_s=1)


def test_every_rule_has_a_sample_and_an_id_of_its_own() -> None:
    ids = rule_ids()

    assert sorted(ids) == sorted({sample.rule for sample in BAD})


def test_every_rule_says_why_as_the_rest_of_a_sentence() -> None:
    texts = matching.sources().values()
    public = sum(len(re.findall(r"^rule ", text, re.MULTILINE)) for text in texts)
    whys = [found for text in texts for found in re.findall(r'\bwhy = "([^"]+)"', text)]

    assert len(whys) == len(rule_ids()) == public
    assert [why for why in whys if not re.fullmatch(r"(is|asks|hides|loads|puts|sends|starts)\b.*[a-z']", why)] == []
