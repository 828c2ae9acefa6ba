"""Writable image roots: their files, users and changes, as root and as an ordinary user."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mounts import own_mounts
from tests.runtime.sandbox.image_runs import FIRST_ID, ImageRunner
from tests.runtime.shim.image_support import make_root
from tests.runtime.workers.invoker_support import MODE_PARAMS, MODES, give

from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.rootfs.spec import FIRST_RANGE, IDS, RANGES, first_id
from moorage.runtime.sandbox.runs.main import NO_SANDBOX, TOO_MUCH_DISK

PASSWD = "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\nbroken\n"
GROUP = "root:x:0:\nstaff:x:50:other,node\n"


COPIES = "root, copies"  # root on a kernel without id-mapped mounts below an overlay


@pytest.fixture(params=[*MODE_PARAMS, *([COPIES] if "root" in MODES else [])], scope="module")
def runner(request: pytest.FixtureRequest) -> Iterator[ImageRunner]:
    mode = request.param.partition(",")[0]
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        image = make_root(Path(folder, "image"), "chown", "chmod", "rm", "mknod", "stat", "mv", "mkfifo", "dd", "ln")
        (image / "etc" / "passwd").write_text(PASSWD)
        (image / "etc" / "group").write_text(GROUP)
        (image / "old").mkdir()
        (image / "old" / "file").write_text("old")
        Path(folder).chmod(0o755)
        give(Path(folder), mode)
        if mode == "root":
            os.chown(image / "app", 1000, 1001)
        yield ImageRunner(mode, Path(folder), image, maps_ids=request.param != COPIES)


def kinds(folder: Path) -> dict[str, str]:
    """Return all entries of a folder with their file types."""
    letters = {stat.S_IFDIR: "folder", stat.S_IFREG: "file", stat.S_IFCHR: "whiteout", stat.S_IFLNK: "link"}
    return {str(path.relative_to(folder)): letters[stat.S_IFMT(path.lstat().st_mode)] for path in folder.rglob("*")}


def test_a_root_is_writable_and_its_changes_stay_in_the_upper_folder(runner: ImageRunner) -> None:
    done = runner.shell("echo new > /made; echo more >> /etc/motd; rm /app/data; cat /etc/motd", upper="changes")

    assert (done.code, done.output) == (0, "of the imagemore\n")
    changes = runner.home / "changes" / "files"
    assert kinds(changes) == {
        "made": "file",
        "etc": "folder",
        "etc/motd": "file",
        "app": "folder",
        "app/data": "whiteout",
    }
    assert (runner.image / "etc" / "motd").read_text() == "of the image"
    assert os.listdir(runner.image / "app") == ["data"]


def test_changes_of_one_run_are_a_layer_of_the_next(runner: ImageRunner) -> None:
    runner.lines("rm -r /old; mkdir /old; echo a > /old/new; rm /app/data", upper="first")

    lowers = [runner.home / "first" / "files"]
    listed = runner.lines("ls /old /app; echo b > /old/b", lowers=lowers, upper="second")

    assert listed == ["/app:", "", "/old:", "new"]
    assert kinds(runner.home / "second" / "files") == {"old": "folder", "old/b": "file"}


def test_owners_and_modes_are_those_of_the_image(runner: ImageRunner) -> None:
    script = "echo > /made; chown 33:44 /made; chmod 4751 /made; stat -c '%u:%g %a' /made /app"

    listed = runner.lines(script, upper="owners")

    status = (runner.home / "owners" / "files" / "made").stat()
    if runner.is_root:
        assert listed == ["33:44 4751", "1000:1001 755"]
        assert (status.st_uid, status.st_gid) == (33, 44)
    else:  # One id: a change of owner succeeds without effect.
        assert listed == ["0:0 4751", "0:0 755"]


def test_changes_in_memory_are_gone_with_the_run_and_have_a_bound(runner: ImageRunner) -> None:
    done = runner.shell("dd if=/dev/zero of=/big bs=1M count=64 2>/dev/null || echo full; ls -s /app", size_mb=8)

    assert "full" in done.output
    assert runner.lines("ls /big 2>/dev/null || echo gone") == ["gone"]


def test_changes_on_disk_have_a_bound(runner: ImageRunner) -> None:
    done = runner.shell(
        "dd if=/dev/zero of=/big bs=1M count=40 2>/dev/null; sleep 60", upper="large", disk_mb=16, file_mb=64
    )

    assert done.code == TOO_MUCH_DISK


@pytest.mark.parametrize(
    ("user", "ids"),
    [
        ("", "0 0 0 /root"),
        ("node", "1000 1001 1001 50 /home/node"),
        ("1000", "1000 1001 1001 50 /home/node"),
        ("node:root", "1000 0 0 /home/node"),
        ("4711", "4711 0 0 /"),
        ("4711:50", "4711 50 50 /"),
    ],
)
def test_the_user_is_one_of_the_image(runner: ImageRunner, user: str, ids: str) -> None:
    listed = runner.lines("echo $(id -u) $(id -g) $(id -G) $HOME", user=user)

    if runner.is_root:
        assert listed == [ids]
    else:  # One id, without further groups.
        uid, gid, *_, home = ids.split()
        assert listed == [f"{uid} {gid} {gid} {home}"]


@pytest.mark.parametrize("user", ["nothere", "node:nothere", "70000", "-1"])
def test_a_user_that_the_image_lacks_is_named(runner: ImageRunner, user: str) -> None:
    done = runner.shell("echo ran", user=user)

    assert done.code == NO_SANDBOX
    assert "the image has no" in done.output
    assert "nothere" in done.output or user in done.output


@pytest.mark.boundary("code-to-host", "Root of an image is an unprivileged user of the machine.")
def test_root_inside_is_nobody_outside(runner: ImageRunner) -> None:
    listed = runner.lines("cat /proc/self/uid_map; grep -E 'CapEff|NoNewPrivs' /proc/self/status")

    inside, outside, count = listed[0].split()
    assert inside == "0"
    assert (outside, count) == ((str(FIRST_ID), "65536") if runner.is_root else (outside, "1"))
    assert outside != "0"
    # Owners of files, users and signals of the own range: no administration, no network, no devices.
    assert listed[1:] == ["CapEff:\t00000000800005fb", "NoNewPrivs:\t1"]


@pytest.mark.boundary("code-to-host", "Root of an image can neither mount, nor make devices, nor change the kernel.")
def test_root_inside_has_no_rights_over_the_machine(runner: ImageRunner) -> None:
    attempts = {
        "device": "mknod /device c 1 1",
        "kernel": "echo 0 > /proc/sys/kernel/randomize_va_space",
        "sysrq": "echo b > /proc/sysrq-trigger",
        "memory": "cat /proc/kcore",
        "devices": "touch /dev/x",
        "big id": "chown 70000 /etc/motd",
    }
    if not runner.is_root:
        del attempts["big id"]

    done = runner.lines(
        "".join(f"({command}) >/dev/null 2>&1 && echo {name};" for name, command in attempts.items()) + "echo end"
    )

    assert done == ["end"]


def test_folders_of_the_host_are_mounted_where_the_image_has_none(runner: ImageRunner) -> None:
    cache, secret = runner.folder("cache"), runner.home / "secret"
    secret.write_text("hidden")
    runner.give(secret)
    script = (
        "cat /run/secrets/token; echo kept > /root/.cache/x; (echo > /run/secrets/token) 2>/dev/null || echo sealed"
    )

    done = runner.shell(
        script, upper="mounts", binds={"/run/secrets/token": str(secret)}, writable={"/root/.cache": str(cache)}
    )

    assert (done.code, done.output) == (0, "hiddensealed\n")
    assert (cache / "x").read_text() == "kept\n"
    assert kinds(runner.home / "mounts" / "files") == {}


def test_a_folder_of_another_user_belongs_to_the_user_of_the_image(runner: ImageRunner) -> None:
    volume = runner.folder("volume")
    (volume / "before").write_text("x")
    for path in (volume, volume / "before"):
        runner.give(path, 500_000_007 if runner.is_root else None)
    volume.chmod(0o700)
    script = "stat -c %u:%g /data /data/before; echo y > /data/after; stat -c %u:%g /data/after"

    listed = runner.lines(script, user="node", writable={"/data": str(volume)})

    assert listed == ["1000:1001"] * 3
    assert (volume / "after").stat().st_uid == volume.stat().st_uid


def test_a_link_of_the_image_does_not_lead_a_mount_out_of_it(runner: ImageRunner) -> None:
    layer = runner.folder("links")
    (layer / "var").mkdir()
    (layer / "var" / "run").symlink_to("../../../../app")
    (layer / "etc").symlink_to("/proc/self")
    cache = runner.folder("linked-cache")

    listed = runner.lines("echo x > /app/mounted/y; ls /etc", lowers=[layer], writable={"/app/mounted": str(cache)})

    assert os.listdir(cache) == ["y"]
    assert {"hosts", "hostname", "resolv.conf"} <= set(listed)


@pytest.mark.boundary("code-to-host", "No folder of a tenant hides files that the platform opens with its rights.")
@pytest.mark.parametrize("target", ["/dev", "/proc/sys/net/ipv4", "/etc/hosts", "/linked", "/linked/sys/net/ipv4"])
def test_a_folder_of_a_tenant_is_not_mounted_over_the_files_of_the_sandbox(runner: ImageRunner, target: str) -> None:
    layer, cache = runner.folder("layer-of-links"), runner.folder("evil-cache")
    if not (layer / "linked").is_symlink():
        (layer / "linked").symlink_to("/proc")
        (cache / "null").symlink_to("/etc/motd")

    done = runner.shell("cat; echo ran", lowers=[layer], writable={target: str(cache)})

    assert done.code == NO_SANDBOX
    assert f"no folder can be mounted at '{target}'" in done.output or "where a folder is needed" in done.output


def test_a_folder_is_mounted_inside_another_one(runner: ImageRunner) -> None:
    outer, inner = runner.folder("outer"), runner.folder("inner")
    (outer / "pip").mkdir(exist_ok=True)
    runner.give(outer / "pip")
    folders = {"/root/.cache": str(outer), "/root/.cache/pip": str(inner)}

    runner.lines("echo x > /root/.cache/pip/y", writable=folders)

    assert os.listdir(inner) == ["y"]


def test_the_input_is_empty(runner: ImageRunner) -> None:
    assert runner.lines("cat; echo end") == ["end"]


@pytest.mark.boundary("code-to-host", "A working directory is inside of the image, whatever its links are.")
@pytest.mark.parametrize(
    "name", ["/proc/self/fd/{}", "/fds/{}/made", "/proc/self/fd/{}/../../made", "/proc/1/root/made"]
)
def test_a_working_directory_does_not_lead_out_of_the_image(runner: ImageRunner, name: str) -> None:
    layer = runner.folder("layer-of-fds")
    if not (layer / "fds").is_symlink():
        (layer / "fds").symlink_to("/proc/self/fd")

    for number in range(3, 12):
        done = runner.shell("pwd; ls -a", lowers=[layer], cwd=name.format(number))

        assert done.code == NO_SANDBOX
        assert "cannot be entered" in done.output
    assert not [*runner.home.glob("made"), *runner.home.parent.glob("made"), *Path("/").glob("made")]


@pytest.mark.parametrize("user", ["", "node"])
def test_output_streams_are_opened_by_their_paths(runner: ImageRunner, user: str) -> None:
    script = "ln -s /dev/stdout /tmp/out.log && echo out >> /tmp/out.log && echo err > /dev/stderr"

    assert runner.lines(script, user=user) == ["out", "err"]


def test_the_working_directory_is_made(runner: ImageRunner) -> None:
    assert runner.lines("echo x > y; cat /srv/deep/y; stat -c %u /srv", cwd="/srv/deep") == ["x", "0"]


def test_ranges_of_workloads_are_apart() -> None:
    firsts = {first_id(kind, number) for kind in ("app", "cronjob") for number in range(RANGES // 2)}

    assert len(firsts) == RANGES
    assert min(firsts) == FIRST_RANGE
    assert max(firsts) + IDS < 2**32 - 1
    assert all((first - FIRST_RANGE) % IDS == 0 for first in firsts)


@pytest.mark.twin
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode == "root"])
def test_an_image_on_a_file_system_without_id_mapped_mounts_runs_from_a_copy(tmp_path: Path, mode: str) -> None:
    tmp_path.chmod(0o755)
    for name in ("empty", "upper", "work", "disk"):
        (tmp_path / name).mkdir()
    with own_mounts():
        layers = f"lowerdir={tmp_path}/empty,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
        sys_.mount("overlay", str(tmp_path / "disk"), "overlay", 0, layers)
        image = make_root(tmp_path / "disk" / "image", "chown", "stat")
        os.chown(image / "app", 1000, 1001)
        runner = ImageRunner(mode, tmp_path, image)

        first = runner.lines("stat -c %u:%g /app / && echo x > /app/new && chown 5 /app/new && stat -c %u /app/new")
        again = runner.lines("ls /app")

        assert first == ["1000:1001", "0:0", "5"]
        assert again == ["data"]
        assert sorted(os.listdir(tmp_path / "disk")) == ["image", f"image.ids-{FIRST_ID}", "image.ids.lock"]
