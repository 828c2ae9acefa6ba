"""Dockerfiles are built in real sandboxes, and the result is an OCI image in the artifact store."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.images.building.image_builds import ORG, Builds, Result
from tests.runtime.images.registry_support import RegistryServer

from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.runtime.images.building import cache, tables
from moorage.runtime.images.building.ports import Limits
from moorage.runtime.images.dockerfile.errors import DockerfileError

pytestmark = [pytest.mark.anyio, pytest.mark.group("image builds")]


@pytest.fixture
async def builds(db: Database, registry: RegistryServer, tmp_path: Path) -> Builds:
    tmp_path.chmod(0o700)
    return Builds(db, registry, tmp_path)


@pytest.mark.parametrize("maps_ids", [True, False])
async def test_owners_are_kept_with_and_without_mapped_ids(builds: Builds, maps_ids: bool) -> None:
    builds.maps_ids, builds.secrets = maps_ids, {"TOKEN": "hidden"}

    result = await builds.build(
        """
        FROM BASE AS first
        RUN mkdir /made && echo a > /made/a && chown app:staff /made/a && chmod 4750 /made/a && ln /made/a /made/b
        RUN rm -r /app && mkdir /app && touch /app/new && chown -R 7:8 /app
        COPY --chown=app:app in.txt /home/app/
        FROM first
        USER app
        RUN --mount=type=cache,target=/cache,uid=1000 --mount=type=secret,id=TOKEN,uid=1000 \\
            echo x >> /cache/x && cat /run/secrets/TOKEN /cache/x /home/app/in.txt /made/a > /tmp/seen
        USER root
        RUN --mount=type=cache,target=/cache,uid=1000 stat -c %u /cache /cache/x /app/new > /owners
        """,
        {"in.txt": "in\n"},
    )

    owners = {name: (member.uid, member.gid, oct(member.mode)) for name, member in result.tree.items()}
    assert owners["made/a"] == (1000, 50, "0o4750")
    assert result.tree["made/b"].linkname == "made/a"
    assert owners["app"] == (7, 8, "0o755")
    assert owners["home/app/in.txt"] == (1000, 1001, "0o644")
    assert owners["tmp/seen"] == (1000, 1001, "0o644")
    assert result.content("tmp/seen") == "hiddenx\nin\na\n"
    assert result.content("owners") == "1000\n1000\n7\n"


async def test_a_multi_stage_build_has_only_the_files_of_its_last_stage(builds: Builds) -> None:
    result = await builds.build(
        """
        FROM BASE AS build
        WORKDIR /src
        COPY . .
        RUN cat in.txt > out.txt && echo built >> out.txt
        FROM BASE
        COPY --from=build /src/out.txt /app/
        ENV MODE=production PATH=/app:$PATH
        USER app
        EXPOSE 8080
        CMD ["cat", "/app/out.txt"]
        """,
        {"in.txt": "hello\n"},
    )

    assert result.content("app/out.txt") == "hello\nbuilt\n"
    assert "src" not in result.tree
    config = result.config["config"]
    assert config["Env"] == ["PATH=/app:/usr/local/bin:/usr/bin:/bin", "BASE=yes", "MODE=production"]
    assert (config["User"], config["Cmd"], config["ExposedPorts"]) == (
        "app",
        ["cat", "/app/out.txt"],
        {"8080/tcp": {}},
    )
    assert len(result.config["rootfs"]["diff_ids"]) == len(result.image.layers)
    for layer, diff_id in zip(result.layers, result.config["rootfs"]["diff_ids"][1:], strict=True):
        assert f"sha256:{hashlib.sha256(layer).hexdigest()}" == diff_id


async def test_a_changed_source_line_does_not_repeat_the_installation(builds: Builds) -> None:
    dockerfile = """
        FROM BASE
        WORKDIR /app
        COPY package.json ./
        RUN echo installed > node_modules
        COPY . .
        RUN cat main.js > bundle.js
        """
    first = await builds.build(dockerfile, {"package.json": "{}", "main.js": "1"})
    second = await builds.build(dockerfile, {"package.json": "{}", "main.js": "2"})
    third = await builds.build(dockerfile, {"package.json": "{}", "main.js": "2"})

    assert len(first.steps) == 6
    assert [line.partition("] ")[2] for line in second.steps] == [
        f"FROM {builds.base}",
        "COPY . .",
        "RUN cat main.js > bundle.js",
    ]
    assert second.content("app/bundle.js") == "2"
    assert len(third.steps) == 1
    assert third.image.digest == second.image.digest


async def test_unneeded_stages_are_not_built_and_a_target_ends_the_build(builds: Builds) -> None:
    dockerfile = "FROM BASE AS a\nRUN false\nFROM BASE AS b\nRUN echo b > /b\nFROM BASE AS c\nRUN echo c > /c\nFROM b"

    last = await builds.build(dockerfile)
    chosen = await builds.build(dockerfile, target="c")

    assert (last.content("b"), "c" in last.tree) == ("b\n", False)
    assert (chosen.content("c"), "b" in chosen.tree) == ("c\n", False)


async def test_removed_files_and_replaced_folders_are_whiteouts(builds: Builds) -> None:
    result = await builds.build(
        "FROM BASE\nRUN mkdir -p /x/y && echo 1 > /x/y/old\n"
        "RUN rm /etc/motd && rm -r /x/y && mkdir /x/y && echo 2 > /x/y/new"
    )

    assert {"etc/.wh.motd", "x/y/.wh..wh..opq", "x/y/new"} <= set(result.tree)


async def test_arguments_and_variables_are_in_scope_as_docker_has_them(builds: Builds) -> None:
    result = await builds.build(
        """
        ARG VERSION=1
        FROM BASE
        ARG VERSION
        ARG NAME=default
        ARG TARGETARCH
        ENV KEPT=$NAME-$VERSION
        RUN echo "$VERSION $NAME $KEPT ${TARGETARCH:+arch}" > /out
        """,
        args={"NAME": "given", "VERSION": "2", "UNUSED": "x"},
    )

    assert result.content("out") == "2 given given-2 arch\n"
    assert "KEPT=given-2" in result.config["config"]["Env"]
    assert not any(entry.startswith("NAME=") for entry in result.config["config"]["Env"])
    assert "note: the build argument UNUSED is not declared by any ARG that was executed" in result.log


async def test_a_changed_argument_repeats_only_the_steps_that_can_see_it(builds: Builds) -> None:
    dockerfile = "FROM BASE\nRUN echo before > /a\nARG X\nRUN echo after > /b"
    await builds.build(dockerfile, args={"X": "1"})

    second = await builds.build(dockerfile, args={"X": "2"})

    assert [line.partition("] ")[2] for line in second.steps][1:] == ["RUN echo after > /b"]


async def test_secrets_are_readable_in_their_step_and_in_no_layer(builds: Builds) -> None:
    builds.secrets = {"TOKEN": "s3cr3t-value-of-the-project"}

    result = await builds.build(
        """
        FROM BASE
        RUN --mount=type=secret,id=TOKEN wc -c < /run/secrets/TOKEN > /size
        RUN --mount=type=secret,id=TOKEN,env=SEEN test "$SEEN" = s3cr3t-value-of-the-project
        RUN --mount=type=secret,id=TOKEN,target=/etc/npmrc,mode=0444 cat /etc/npmrc | wc -c >> /size
        RUN test ! -e /run/secrets/TOKEN && test ! -e /etc/npmrc
        """
    )

    assert result.content("size").split() == ["27", "27"]
    assert not [name for name in result.tree if "secrets" in name or "npmrc" in name]
    stored = [await builds.fetch(digest) for digest in builds_digests(result)]
    assert not any(b"s3cr3t-value" in body for body in stored)


def builds_digests(result: Result) -> list[str]:
    return [result.image.digest, *(layer.digest for layer in result.image.layers)]


async def test_cache_mounts_are_kept_between_builds_and_are_in_no_layer(builds: Builds) -> None:
    dockerfile = "FROM BASE\nARG N\nRUN --mount=type=cache,target=/c/x echo $N >> /c/x/all && cat /c/x/all > /seen"

    await builds.build(dockerfile, args={"N": "1"})
    second = await builds.build(dockerfile, args={"N": "2"})

    assert second.content("seen") == "1\n2\n"
    assert "c/x/all" not in second.tree


async def test_bind_and_tmpfs_mounts(builds: Builds) -> None:
    result = await builds.build(
        """
        FROM BASE AS other
        RUN mkdir /data && echo staged > /data/file
        FROM BASE
        RUN --mount=type=bind,target=/ctx --mount=type=bind,from=other,source=/data,target=/d \
            --mount=type=tmpfs,target=/scratch \
            cat /ctx/a.txt /d/file > /out && echo x > /scratch/x && ! touch /ctx/new
        """,
        {"a.txt": "context\n"},
    )

    assert result.content("out") == "context\nstaged\n"
    assert not [name for name in result.tree if name.startswith(("ctx/", "d/", "scratch/"))]


async def test_heredocs_run_as_scripts_and_are_copied_as_files(builds: Builds) -> None:
    result = await builds.build(
        """FROM BASE
ENV WHO=world
COPY <<EOF <<-"RAW" /conf/
hello $WHO "quoted"
EOF
	raw $WHO
	RAW
RUN <<END
set -e
echo one > /out
echo two >> /out
END
RUN <<X
#!/bin/sh
echo "$0" > /script
X
RUN cat <<A > /c && cat /c >> /out
three
A
"""
    )

    assert result.content("conf/EOF") == 'hello world "quoted"\n'
    assert result.content("conf/RAW") == "raw $WHO\n"
    assert result.content("out") == "one\ntwo\nthree\n"
    assert result.tree["conf/EOF"].mode == 0o644


async def test_users_owners_and_modes(builds: Builds) -> None:
    result = await builds.build(
        """
        FROM BASE
        RUN mkdir /home/app && chown app:app /home/app
        USER app
        WORKDIR /home/app
        RUN id -u > uid && id -g >> uid && echo $HOME >> uid && chmod 600 uid
        COPY --chown=app:staff --chmod=640 a.txt /data/a
        COPY --chown=5 a.txt /data/b
        COPY a.txt /data/c
        """,
        {"a.txt": "x"},
    )

    assert result.content("home/app/uid") == "1000\n1001\n/home/app\n"
    owned = {name: (each.uid, each.gid, oct(each.mode)) for name, each in result.tree.items()}
    assert owned["home/app/uid"] == (1000, 1001, "0o600")
    assert owned["data/a"] == (1000, 50, "0o640")
    assert owned["data/b"] == (5, 5, "0o644")
    assert owned["data/c"] == (0, 0, "0o644")


async def test_ignored_files_are_not_copied_and_do_not_change_the_key(builds: Builds) -> None:
    files = {".dockerignore": "*.log\nnode_modules\n!keep.log", "a": "1", "x.log": "1", "keep.log": "k",
             "node_modules/p": "1"}  # fmt: skip
    first = await builds.build("FROM BASE\nCOPY . /app/", files)

    second = await builds.build("FROM BASE\nCOPY . /app/", {**files, "x.log": "2"})

    names = {name for name in first.tree if name.startswith("app/")}
    assert names == {"app/.dockerignore", "app/a", "app/keep.log"}
    assert second.image.digest == first.image.digest


async def test_triggers_of_a_base_image_run_in_the_next_build(builds: Builds) -> None:
    parent = await builds.build("FROM BASE\nONBUILD COPY a.txt /a\nONBUILD RUN cat /a > /b")
    assert parent.config["config"]["OnBuild"] == ["COPY a.txt /a", "RUN cat /a > /b"]

    result = await builds.build(
        "FROM BASE AS parent\nONBUILD COPY a.txt /a\nONBUILD RUN cat /a > /b\nFROM parent", {"a.txt": "x"}
    )

    assert result.content("b") == "x"
    assert "OnBuild" not in result.config["config"]


async def test_archives_are_unpacked_by_add_only(builds: Builds) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        header = tarfile.TarInfo("in/file")
        header.size, header.uid, header.mode = 2, 42, 0o750
        archive.addfile(header, io.BytesIO(b"ok"))
    result = await builds.build("FROM BASE\nADD a.tgz /un/\nCOPY a.tgz /kept/", {"a.tgz": packed.getvalue()})

    assert result.content("un/in/file") == "ok"
    assert (result.tree["un/in/file"].uid, oct(result.tree["un/in/file"].mode)) == (42, "0o750")
    assert "kept/a.tgz" in result.tree


async def test_a_layer_that_this_machine_no_longer_has_is_unpacked_again(builds: Builds) -> None:
    dockerfile = "FROM BASE\nRUN mkdir /d && echo 1 > /d/a && rm /etc/motd\nARG X\nRUN ls /d /etc > /out"
    await builds.build(dockerfile, args={"X": "1"})
    assert builds.folders.trim(0) > 0

    again = await builds.build(dockerfile, args={"X": "2"})

    assert "a" in again.content("out").split()
    assert "motd" not in again.content("out").split()


async def test_rows_over_the_limit_and_unused_rows_are_removed(builds: Builds, clock: ManualClock) -> None:
    await builds.build("FROM BASE\nRUN echo 1 > /a\nRUN echo 2 > /b")

    removed = await builds.db.write(lambda tx: cache.trim(tx, ORG, builds.cache, most_rows=1))
    clock.advance(15 * DAY_MS)
    await builds.db.write(cache.sweep)

    assert removed == 2
    assert await builds.db.read(lambda tx: tx.all(tables.ALL, org_id=ORG, cache=builds.cache)) == []


BAD = {
    "FROM BASE\nRUN exit 3": (2, "RUN exit 3 failed"),
    "FROM BASE\nCOPY ../x /x": (2, "'../x' leads out of the build context"),
    "FROM BASE\nCOPY missing /x": (2, "'missing' is missing in the build context"),
    "FROM BASE\nCOPY *.none /x": (2, "'*.none' is missing in the build context"),
    "FROM BASE\nCOPY out /x": (2, "is a link to '/etc/passwd', which leads out of the build context"),
    "FROM BASE\nCOPY up /x": (2, "leads out of the build context"),
    "FROM BASE\nCOPY hidden /x": (2, "'hidden' is excluded by the ignore file from the build context"),
    "FROM BASE\nCOPY --from=nothing a /x": (2, "'nothing' is neither a stage (no stage has a name) nor an image"),
    "FROM BASE AS one\nCOPY --from=on a /x": (2, "'on' is neither a stage (the stages are one) nor an image"),
    "FROM BASE-missing": (1, "cannot pull"),
    "FROM Not/Valid:": (1, ""),
    "FROM BASE\nCOPY --from=² a /x": (2, "'²' is neither a stage"),
    f"FROM BASE\nCOPY --chown={'9' * 5_000} a /x": (2, "is larger than 65,535"),
    "FROM BASE\nCOPY --chown=nobody-here a /x": (2, "the image has no user 'nobody-here'"),
    "FROM BASE\nUSER nobody-here\nRUN true": (3, "the image has no user 'nobody-here' in its /etc/passwd"),
    "FROM BASE\nCOPY a b /x": (2, "should end with /"),
    "FROM BASE\nCOPY dir /etc/passwd": (2, "/etc/passwd is not a folder in the image"),
    "FROM scratch\nRUN true": (2, "the image has no /bin/sh"),
    "FROM BASE\nRUN --mount=type=secret,id=NONE,required true": (2, "the secret 'NONE' is required"),
    "FROM BASE\nEXPOSE many": (2, "'many' should be a port"),
    "FROM BASE\nSTOPSIGNAL SIGNOTHING": (2, "is not a signal"),
    "FROM BASE\nADD http://127.0.0.1:1/x /x": (2, "cannot download http://127.0.0.1:1/x"),
    "FROM BASE\nADD https://example.com/a.git /x": (2, "Git repositories are not cloned"),
    "FROM BASE\nADD evil.tar /x": (2, "forbidden name '../evil'"),
    "FROM BASE\nADD linked.tar /x": (2, "links 'x/l' to a file that it does not have"),
    "FROM BASE\nENV a=\"${b:?is not set}\"": (2, "b: is not set"),
}  # fmt: skip


def bad_tar(name: str, **header: Any) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        for key, value in header.items():
            setattr(entry, key, value)
        archive.addfile(entry)
    return packed.getvalue()


async def test_bad_input_is_refused_with_the_line_and_leaves_nothing_behind(
    builds: Builds, subtests: pytest.Subtests
) -> None:
    files: dict[str, str | bytes] = {
        "a": "1", "b": "2", "dir/x": "3", "out": "-> /etc/passwd", "up": "-> ../../x", "hidden": "h",
        ".dockerignore": "hidden", "evil.tar": bad_tar("../evil"),
        "linked.tar": bad_tar("l", type=tarfile.LNKTYPE, linkname="etc/passwd"),
    }  # fmt: skip
    for dockerfile, (line, why) in BAD.items():
        with subtests.test(dockerfile):
            with pytest.raises(DockerfileError) as caught:
                await builds.build(dockerfile, files)
            assert (caught.value.line, why in str(caught.value)) == (line, True), str(caught.value)
            assert not list(builds.folders.root.glob(".new-*"))


async def test_a_step_with_too_many_files_is_refused(db: Database, registry: RegistryServer, tmp_path: Path) -> None:
    builds = Builds(db, registry, tmp_path, limits=Limits(files=20))

    with pytest.raises(DockerfileError, match="line 2: the step has more than 20 files"):
        await builds.build("FROM BASE\nRUN for i in $(seq 30); do echo > /f$i; done")


async def test_a_step_cannot_reach_the_machine(builds: Builds) -> None:
    outside = builds.home / "outside"
    outside.write_text("of the machine")

    result = await builds.build(
        f"FROM BASE\nRUN cat {outside} > /seen 2>&1 || true\n"
        "RUN id -u > /uid && (mknod /sda b 8 0 || echo no) >> /uid 2>&1"
    )

    assert "of the machine" not in result.content("seen")
    assert "no" in result.content("uid").split()


async def test_an_archive_with_a_huge_header_is_refused(builds: Builds) -> None:
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 2**32
    packed = gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(2**20))

    result = await builds.build("FROM BASE\nADD bomb.tgz /x/", {"bomb.tgz": packed})

    assert "x/bomb.tgz" in result.tree  # not an archive, so it is copied


async def test_folders_that_are_nested_too_deeply_are_refused(builds: Builds) -> None:
    with pytest.raises(
        DockerfileError, match="line 2: the step made folders that are nested more than 400 levels deep"
    ):
        await builds.build("FROM BASE\nRUN i=0; while [ $i -lt 420 ]; do mkdir d && cd d; i=$((i+1)); done")


async def test_a_cancelled_build_leaves_nothing_behind(builds: Builds) -> None:
    prepared = builds.prepare("FROM BASE\nRUN echo started && sleep 300")
    task = asyncio.ensure_future(builds.execute(prepared))
    while "started" not in builds.output:
        await asyncio.sleep(0.05)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not list(builds.folders.root.glob(".new-*"))
    assert not list(prepared.workspace.scratch.iterdir())
