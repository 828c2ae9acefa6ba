"""Apps with sandboxes switched off: they run with the platform's rights, and end with their shim."""

from __future__ import annotations

import pytest
from tests.runtime.engines.engine_support import Engine, lives
from tests.runtime.workers.invoker_support import until


def test_an_app_outside_of_a_sandbox_takes_its_port_itself(engine: Engine) -> None:
    app = engine.lab(is_boxed=False)

    answer = app.run("answer = [os.environ['HOST'], os.getcwd(), os.getuid()]")

    assert "hello" in app.get()
    assert answer[:2] == ["127.0.0.1", app.spec["release"]]
    app.stop()
    with pytest.raises(ConnectionRefusedError):
        app.get()


def test_what_it_left_behind_ends_with_it(engine: Engine) -> None:
    app = engine.lab(is_boxed=False)
    left = app.run("answer = subprocess.Popen(['sleep', '600'], start_new_session=True).pid")

    with pytest.raises((ConnectionError, OSError)):
        app.run("os._exit(4)")

    state = app.until(restarts=1, is_listening=True)
    assert state["reason"] == "it ended with exit code 4"
    until(lambda: not lives(left))
    app.stop()
