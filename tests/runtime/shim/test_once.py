"""One-off runs, of a release or an image: supervision, timeouts and result files."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.engines.engine_support import APP_UID, Engine, Replica, lives
from tests.runtime.shim.image_support import make_root
from tests.runtime.workers.invoker_support import until

from moorage.products.apps.logs.log_files import AppLogs

SHELL = ["/bin/sh", "-c"]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def begin(engine: Engine, argv: list[str], files: dict[str, str] | None = None, **changed: Any) -> Replica:
    spec = engine.make(files or {}, argv, kind="run", **changed)
    folder = str(engine.home / "logs" / spec["key"])
    given = {"log_folder": folder, "result": f"{folder}/result.json"}
    return engine.begin({**spec, **given}, listens=False)


def result_of(run: Replica) -> Any:
    path = Path(run.spec["result"])
    until(path.exists, f"the result of {run.key}")
    return json.loads(path.read_text())


def refusal(engine: Engine, argv: list[str], **changed: Any) -> str:
    spec = engine.make({}, argv, kind="run", result=str(engine.home / "logs" / "never.json"), **changed)
    return str(engine.ask("start", spec=spec)["error"])


def printed(run: Replica) -> list[str]:
    result_of(run)
    return run.log()


@pytest.mark.parametrize("code", [0, 3])
def test_a_run_ends_with_its_exit_code_and_leaves_its_output(engine: Engine, code: int) -> None:
    run = begin(engine, [*SHELL, f"echo out; echo err >&2; exit {code}"])

    result = result_of(run)

    assert result["exitCode"] == code
    assert result["reason"] == (None if code == 0 else "it ended with exit code 3")
    assert result["startedMs"] <= result["endedMs"]
    log = run.log()
    assert {"o out", "e err"} <= set(log)
    assert (log[0], log[-1]) == ("s starting", f"s ended: it ended with exit code {code}")
    until(lambda: run.state() is None)
    until(lambda: not run.folder.exists())


def test_a_run_is_not_started_again_and_what_watched_over_it_goes(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "sleep 0.2; exit 1"])

    result_of(run)

    until(lambda: not lives(run.shim))
    assert run.log().count("s starting") == 1


def test_a_run_has_no_port_and_is_told_of_none(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "echo port=$PORT host=$HOST home=$HOME; sleep 0.5"])

    assert run.port == 0
    assert "o port= host= home=/tmp" in printed(run)


def test_a_run_that_is_over_at_once_is_still_a_start_that_worked(engine: Engine) -> None:
    runs = [begin(engine, ["/bin/true"]) for _ in range(5)]

    assert [result_of(run)["exitCode"] for run in runs] == [0] * 5


def test_a_run_that_takes_too_long_is_asked_to_end_and_says_why(engine: Engine) -> None:
    code = "trap 'echo leaving; exit 0' TERM; while :; do sleep 0.05; done"
    run = begin(engine, [*SHELL, code], timeout_s=1)

    result = result_of(run)

    assert (result["exitCode"], result["reason"]) == (0, "it took longer than 1 second")
    assert run.log()[-2:] == ["o leaving", "s ended: it took longer than 1 second"]


def test_a_run_that_is_stopped_says_so(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "trap '' TERM; echo up; while :; do sleep 0.05; done"])
    until(lambda: "o up" in run.log())

    run.stop(grace_s=0.2)

    result = result_of(run)
    assert (result["exitCode"], result["reason"]) == (137, "it was stopped")
    assert not lives(run.shim)


def test_a_run_that_takes_too_much_memory_says_so(engine: Engine) -> None:
    code = "hold = []\nwhile True:\n    hold.append(b'x' * (1 << 20))"
    run = begin(engine, [engine.python, "main.py"], {"main.py": code}, memory_mb=64)

    result = result_of(run)

    assert result["exitCode"] != 0
    # Without cgroups, a fast process meets its own resource limit first.
    assert result["reason"] in ("it ran out of memory (64 MB)", "it ended with exit code 1")
    assert engine.mode == "user" or result["reason"] == "it ran out of memory (64 MB)"


def test_a_run_goes_on_when_the_control_plane_is_killed_and_is_found_by_its_token(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "while [ ! -e /tmp/x ]; do sleep 0.05; done"])
    engine.end(kill=True)

    engine.ask("adopt", tokens={run.key: run.spec["token"]})

    assert run.state()["phase"] == "running"
    run.stop(grace_s=0.0)
    assert result_of(run)["reason"] == "it was stopped"


def test_what_ends_while_the_control_plane_is_away_is_read_later(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "sleep 0.3; exit 5"])
    engine.end(kill=True)

    assert result_of(run)["exitCode"] == 5

    until(lambda: not run.folder.exists())
    engine.ask("adopt", tokens={run.key: run.spec["token"]})
    assert run.state() is None


def test_of_a_long_log_the_newest_is_kept_and_the_cut_is_marked(engine: Engine) -> None:
    code = "for n in range(60_000):\n    print(f'line {n:06d} ' + 'x' * 50)\n"
    run = begin(engine, [engine.python, "main.py"], {"main.py": code}, log_bytes=2_000_000)
    result_of(run)

    lines = AppLogs(Path(run.spec["log_folder"]).parent).read(run.key, limit=10**6)  # type: ignore[arg-type]

    size = sum(path.stat().st_size for path in Path(run.spec["log_folder"]).glob("*.log"))
    assert 1_500_000 < size <= 2_000_500
    assert lines[0].stream == "system"
    assert lines[0].message.startswith("the log is cut here: ")
    assert [line.message[:11] for line in lines[-2:]] == ["line 059999", "ended: it e"]
    numbers = [int(line.message[5:11]) for line in lines if line.stream == "stdout"]
    assert numbers == list(range(numbers[0], 60_000))


def test_secrets_are_masked_in_the_log_of_a_run(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "echo the key is $KEY"], env={"PATH": PATH, "KEY": "hush-hush"}, hidden=["hush-hush"])

    assert "o the key is ****" in printed(run)


# Images.


@pytest.fixture(scope="module")
def image(engine: Engine) -> Path:
    return make_root(engine.home / "image")


def run_image(engine: Engine, image: Path, script: str, **changed: Any) -> Replica:
    given = {"image": str(image), "binds": {}, "env": {"PATH": PATH}, **changed}
    return begin(engine, ["sh", "-c", script], **given)


def test_an_images_files_take_the_place_of_the_systems(engine: Engine, image: Path) -> None:
    script = "cat /etc/motd; echo; ls /; hostname; cat data"

    run = run_image(engine, image, script, workdir="/app")

    log = printed(run)
    assert result_of(run)["exitCode"] == 0, log
    listed = {line[2:] for line in log if line.startswith("o ")}
    assert {"of the image", "app", "bin", "dev", "etc", "proc", "tmp", "usr", "work", "job", "inside"} <= listed
    assert not listed & {"root", "home", "var", "sys", "run"}


def test_an_image_is_read_only_and_its_private_folders_are_not(engine: Engine, image: Path) -> None:
    places = "/x /app/x /etc/x /usr/x /etc/motd /tmp/x /work/x /dev/shm/y /proc/x"
    script = f"for p in {places}; do (echo > $p) 2>/dev/null && echo $p; done; true"

    run = run_image(engine, image, script)

    assert [line for line in printed(run) if line.startswith("o ")] == ["o /tmp/x", "o /work/x", "o /dev/shm/y"]
    assert sorted(path.name for path in image.iterdir() if path.name in ("x", "tmp", "work", "proc", "dev")) == []


def test_an_image_is_run_as_the_sandboxs_own_user_whatever_it_says(engine: Engine, image: Path) -> None:
    run = run_image(engine, image, "id -u; id -un; grep Cap /proc/self/status")

    log = printed(run)
    own = APP_UID if engine.mode == "root" else 1000
    assert [f"o {own}", "o app"] == [line for line in log if line.startswith("o ")][:2]
    assert "o CapEff:\t0000000000000000" in log


def test_an_image_has_the_sandboxs_network_files_and_no_others_of_the_host(engine: Engine, image: Path) -> None:
    run = run_image(engine, image, "cat /etc/resolv.conf /etc/hosts /etc/hostname; ls /etc")

    log = printed(run)
    assert {"o nameserver 127.0.0.1", "o 127.0.0.1 localhost job", "o job"} <= set(log)
    assert [line[2:] for line in log if line.startswith("o ")][-6:] == [
        "group", "hostname", "hosts", "motd", "passwd", "resolv.conf",
    ]  # fmt: skip


def test_a_program_that_the_image_lacks_is_named(engine: Engine, image: Path) -> None:
    given = {"image": str(image), "binds": {}, "env": {"PATH": PATH}}

    assert refusal(engine, ["nothing"], **given) == "it cannot be started: there is no program 'nothing' in the image"
    assert "there is no program '/usr/bin/no'" in refusal(engine, ["/usr/bin/no"], **given)
    assert "'/nowhere'" in refusal(engine, ["sh"], **given, workdir="/nowhere")


def test_a_program_is_found_on_the_path_of_the_image(engine: Engine, image: Path) -> None:
    tools = image / "opt" / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    (tools / "greet").write_text("#!/bin/sh\necho hello from the path\n")
    (tools / "greet").chmod(0o755)

    run = begin(engine, ["greet"], image=str(image), binds={}, env={"PATH": "/opt/tools:/usr/bin"})

    assert "o hello from the path" in printed(run)


def test_a_folder_of_the_private_ones_is_made_where_the_image_begins_in_it(engine: Engine, image: Path) -> None:
    run = run_image(engine, image, "echo x > made; ls; readlink /proc/self/cwd", workdir="/work/deep/er")

    assert [line for line in printed(run) if line.startswith("o ")] == ["o made", "o /work/deep/er"]


def test_what_an_image_has_in_its_own_work_folder_stays(engine: Engine, image: Path) -> None:
    other = engine.home / "with-work"
    shutil.copytree(image, other, symlinks=True)
    (other / "work").mkdir()
    (other / "work" / "main").write_text("mine")

    run = run_image(engine, other, "cat main; (echo > x) 2>/dev/null || echo sealed", workdir="/work")

    assert "o minesealed" in printed(run)


def test_the_private_folders_of_an_image_have_one_bound(engine: Engine, image: Path) -> None:
    script = "(while cat /usr/bin/sh >> /work/much; do :; done) 2>/dev/null; (cat /usr/bin/sh > /tmp/x) || echo full"

    run = run_image(engine, image, script, memory_mb=256)

    assert "o full" in printed(run)


def test_an_image_leads_nowhere_with_links_of_its_own(engine: Engine, image: Path) -> None:
    other = engine.home / "with-links"
    shutil.copytree(image, other, symlinks=True)
    shutil.rmtree(other / "etc")
    (other / "etc").symlink_to("/etc")
    (other / "proc").symlink_to("/app")
    (other / "tmp").symlink_to("/app")
    (other / "host").symlink_to(os.fspath(engine.home))

    run = run_image(
        engine, other, "ls /etc; ls /host/ 2>/dev/null || echo nothing; ls /proc/self/fd > /tmp/x && echo ok"
    )

    log = [line[2:] for line in printed(run) if line.startswith("o ")]
    assert log == ["group", "hostname", "hosts", "passwd", "resolv.conf", "nothing", "ok"]


def test_without_a_sandbox_an_image_is_refused(engine: Engine, image: Path) -> None:
    assert "sandboxes only" in refusal(engine, ["sh"], image=str(image), is_boxed=False)


def test_a_run_outside_of_a_sandbox_ends_the_same_way(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "echo here; exit 4"], is_boxed=False)

    assert result_of(run)["exitCode"] == 4
    assert "o here" in run.log()


def test_a_killed_shim_takes_its_run_along_and_leaves_no_result(engine: Engine) -> None:
    run = begin(engine, [*SHELL, "sleep 600"])
    app = run.until(phase="running")["app_pid"]

    os.kill(run.shim, signal.SIGKILL)

    until(lambda: run.state() is None)
    until(lambda: not lives(app))
    assert not Path(run.spec["result"]).exists()
    result_of(begin(engine, ["/bin/true"]))  # The next shim removes its leftovers.
