"""`moorage detect` on folders, by the real command, without a platform."""

from __future__ import annotations

from pathlib import Path

from tests.command import moorage
from tests.runtime.builds.build_support import write_files


def test_a_plan_is_printed_with_its_reasons(tmp_path: Path) -> None:
    package = {"dependencies": {"nuxt": "^3.0.0"}, "scripts": {"build": "nuxt build", "generate": "nuxt generate"}}
    write_files(tmp_path, {"package.json": package, "Dockerfile": "FROM x"})

    done = moorage("detect", str(tmp_path))

    lines = done.stdout.splitlines()
    assert lines[:6] == [
        "detected: container app, Nuxt",
        "install:  npm install",
        "build:    npm run build",
        "start:    node .output/server/index.mjs",
        "port:     the variable PORT",
        "health:   GET /, below 500",
    ]
    note = "the Dockerfile is not used: the project is built from its sources (language docker builds it)"
    assert note in lines
    assert "row:      Nuxt" in lines
    assert "because:  nuxt in package.json" in lines
    other = "Node.js site (package.json, script `build` of package.json, no server in Python or Go)"
    assert f"also:     {other}, later in the table" in lines
    assert "Next.js" in lines[-1]


def test_a_folder_that_cannot_be_deployed_exits_with_the_sentence(tmp_path: Path) -> None:
    write_files(tmp_path, {"Cargo.toml": "x"})

    done = moorage("detect", str(tmp_path))

    assert done.returncode == 1
    assert done.stderr.startswith("moorage: this is a Rust app (Cargo.toml), and Rust is not supported")
