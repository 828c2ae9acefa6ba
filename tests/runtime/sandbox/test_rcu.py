"""The switch for expedited RCU grace periods is on inside the block, and restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.runtime.sandbox import rcu


@pytest.fixture
def switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "rcu_expedited"
    path.write_text("0\n")
    monkeypatch.setattr(rcu, "SWITCH", path)
    return path


def test_the_switch_is_on_inside_the_block_and_restored_after_an_error(switch: Path) -> None:
    values: list[str] = []

    def fail() -> None:
        with rcu.expedited_rcu():
            values.append(switch.read_text())
            raise ProcessLookupError

    with pytest.raises(ProcessLookupError):
        fail()

    assert [*values, switch.read_text()] == ["1", "0\n"]


def test_a_second_block_that_ends_later_does_not_leave_the_switch_on(switch: Path) -> None:
    first, second = rcu.expedited_rcu(), rcu.expedited_rcu()

    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)

    assert switch.read_text() == "0\n"


def test_a_switch_that_may_not_be_written_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rcu, "SWITCH", tmp_path / "absent")

    with rcu.expedited_rcu():
        pass

    assert list(tmp_path.iterdir()) == []
