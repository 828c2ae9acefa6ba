"""CPU shares of sessions."""

from __future__ import annotations

import subprocess
from pathlib import Path

from moorage.core.kit.processes.sessions import set_session_nice


def test_a_session_gets_a_nice_value_where_the_kernel_has_autogroups() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        path = Path(f"/proc/{process.pid}/autogroup")

        set_session_nice(7, process.pid)
        text = path.read_text() if path.exists() else None
        process.kill()

    assert text is None or text.endswith(" nice 7\n")


def test_an_ended_process_has_no_session() -> None:
    with subprocess.Popen(["true"], start_new_session=True) as process:
        process.wait()

    set_session_nice(7, process.pid)

    assert not Path(f"/proc/{process.pid}").exists()
