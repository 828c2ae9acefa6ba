"""One-off runs of images: their files, users, programs and bounds."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.runtime.engines.engine_support import Engine
from tests.runtime.shim.image_engine import FIRST_ID, make_image, output_of, refusal, run_script, start_run


@pytest.fixture(scope="module")
def image(engine: Engine) -> Path:
    return make_image(engine)


def test_an_images_files_take_the_place_of_the_systems(engine: Engine, image: Path) -> None:
    listed = set(output_of(run_script(engine, image, "cat /etc/motd; echo; ls /; hostname; cat data", workdir="/app")))

    assert {"of the image", "app", "bin", "dev", "etc", "proc", "tmp", "usr", "job", "inside"} <= listed
    assert not listed & {"root", "home", "var", "run", "boot", "srv"}


def test_an_image_is_writable_as_a_whole_and_stays_as_it_is(engine: Engine, image: Path) -> None:
    places = "/x /app/x /etc/x /usr/x /etc/motd /tmp/x /dev/shm/y /proc/x /dev/x"
    script = f"for p in {places}; do (echo > $p) 2>/dev/null && echo $p; done; true"
    before = sorted(path.name for path in image.iterdir())

    printed = output_of(run_script(engine, image, script))

    assert printed == ["/x", "/app/x", "/etc/x", "/usr/x", "/etc/motd", "/tmp/x", "/dev/shm/y"]
    assert sorted(path.name for path in image.iterdir()) == before
    assert (image / "etc" / "motd").read_text() == "of the image"


def test_a_run_sees_nothing_of_another_one(engine: Engine, image: Path) -> None:
    output_of(run_script(engine, image, "echo > /left"))

    assert output_of(run_script(engine, image, "ls /left 2>/dev/null || echo gone")) == ["gone"]


@pytest.mark.parametrize(("user", "ids"), [("", "0 0 /root"), ("node", "1000 1001 /home/node"), ("7:8", "7 8 /")])
def test_an_image_is_run_as_its_own_user(engine: Engine, image: Path, user: str, ids: str) -> None:
    script = "echo $(id -u) $(id -g) $HOME; grep CapEff /proc/self/status; cat /proc/self/uid_map"

    name, capabilities, uid_map = output_of(run_script(engine, image, script, image_user=user))

    assert name == ids
    assert capabilities.split()[1] == ("00000000800005fb" if not user else "0" * 16)
    outside = uid_map.split()
    assert outside == (["0", str(FIRST_ID), "65536"] if engine.mode == "root" else [ids.split()[0], "0", "1"]) or (
        engine.mode != "root" and outside[2] == "1"
    )


def test_an_image_has_the_sandboxs_network_files_and_no_others_of_the_host(engine: Engine, image: Path) -> None:
    printed = output_of(run_script(engine, image, "cat /etc/resolv.conf /etc/hosts /etc/hostname; ls /etc"))

    assert {"nameserver 127.0.0.1", "127.0.0.1 localhost job", "job"} <= set(printed)
    assert printed[-5:] == ["hostname", "hosts", "motd", "passwd", "resolv.conf"]


def test_what_the_image_lacks_is_named(engine: Engine, image: Path) -> None:
    missing = refusal(engine, image, ["nothing"])

    assert missing == "it cannot be started: there is no program 'nothing' in the image"
    assert "there is no program '/usr/bin/no'" in refusal(engine, image, ["/usr/bin/no"])
    assert "'/etc/motd'" in refusal(engine, image, ["sh"], workdir="/etc/motd")
    assert "no user 'nobody'" in refusal(engine, image, ["sh"], image_user="nobody")


def test_a_program_is_found_on_the_path_of_the_image(engine: Engine, image: Path) -> None:
    tools = image / "opt" / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    (tools / "greet").write_text("#!/bin/sh\necho hello from the path\n")
    (tools / "greet").chmod(0o755)

    run = start_run(engine, image, ["greet"], env={"PATH": "/opt/tools:/usr/bin"})

    assert output_of(run) == ["hello from the path"]
    shutil.rmtree(image / "opt")


def test_the_working_directory_is_made_where_the_image_lacks_it(engine: Engine, image: Path) -> None:
    run = run_script(engine, image, "echo x > made; ls; readlink /proc/self/cwd", workdir="/work/deep/er")

    assert output_of(run) == ["made", "/work/deep/er"]


def test_the_changes_of_a_run_have_a_bound(engine: Engine, image: Path) -> None:
    script = "(while cat /usr/bin/python3 >> /much; do :; done) 2>/dev/null; (cat /usr/bin/sh > /tmp/x) || echo full"

    assert "full" in output_of(run_script(engine, image, script, memory_mb=256))


@pytest.mark.boundary("code-to-host", "Links and odd files of an image lead nowhere outside of it.")
def test_an_image_leads_nowhere_with_links_of_its_own(engine: Engine, image: Path) -> None:
    other = engine.home / "with-links"
    shutil.copytree(image, other, symlinks=True)
    shutil.rmtree(other / "etc")
    (other / "etc").symlink_to("/etc")
    (other / "proc").symlink_to("/app")
    (other / "dev").symlink_to("/proc/self/root/dev")
    (other / "tmp").symlink_to("/app")
    (other / "host").symlink_to(os.fspath(engine.home))

    script = "ls /etc; ls /host/ 2>/dev/null || echo nothing; ls /proc/self/fd > /dev/null && echo ok"
    assert output_of(run_script(engine, other, script)) == ["hostname", "hosts", "resolv.conf", "nothing", "ok"]


def test_without_a_sandbox_an_image_is_refused(engine: Engine, image: Path) -> None:
    assert "sandboxes only" in refusal(engine, image, ["sh"], is_boxed=False)
