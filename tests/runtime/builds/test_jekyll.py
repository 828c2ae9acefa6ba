"""Jekyll, put together from packages of Debian."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed, Plan
from moorage.runtime.builds.python import debian
from moorage.runtime.builds.toolchain import jekyll, toolchains
from moorage.settings import Settings

SASS = "usr/share/rubygems-integration/all/gems/sassc-2.4.0/lib/sassc/native.rb"
RUBY = """#!/bin/sh
echo "$LD_LIBRARY_PATH $1 $2"
"""


def make_package(downloads: Path, name: str, files: dict[str, str]) -> None:
    """Write a package of Debian with some files; programs among them can be executed."""
    root = downloads.parent / f"tree-{name}"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: T <t@example.org>\nDescription: test\n"
    )
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        (root / path).chmod(0o755 if "/bin/" in path else 0o644)
    argv = ["dpkg-deb", "--build", "--root-owner-group", str(root), str(downloads / f"{name}_1_all.deb")]
    subprocess.run(argv, check=True, capture_output=True)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    make_package(downloads, "libc6", {"usr/lib/arch/libc.so.6": "the machine has its own"})
    make_package(downloads, "ruby", {"usr/bin/ruby": RUBY, "usr/share/doc/ruby/copyright": "long"})
    make_package(
        downloads, "libruby", {"usr/lib/arch/libruby-3.1.so.3.1.2": "", "usr/lib/ruby/3.1.0/set.rb": "", "etc/x": ""}
    )
    make_package(downloads, "ruby-sassc", {SASS: "ffi_lib \"/usr/lib/#{RbConfig::CONFIG['arch']}/libsass.#{ext}\"\n"})
    jekyll.assemble(downloads, tmp_path / "jekyll")
    return tmp_path / "jekyll"


def test_packages_become_one_folder_without_the_parts_of_the_machine(built: Path) -> None:
    assert not list(built.rglob("libc.so*"))
    assert not (built / "usr/share/doc").exists()
    assert not (built / "etc").exists()
    assert (built / SASS).read_text() == 'ffi_lib "libsass.so.1"\n'


def test_its_program_starts_ruby_with_the_libraries_of_the_folder(built: Path) -> None:
    done = subprocess.run([str(built / "bin/jekyll"), "build"], check=True, capture_output=True, text=True)

    assert done.stdout.split() == [str(built / "usr/lib/arch"), str(built / "bin/jekyll_site.rb"), "build"]
    assert os.access(built / "bin/jekyll_site.rb", os.R_OK)


def test_a_site_gets_jekyll_that_is_there_and_a_refusal_where_it_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, plan, said = Settings(data=tmp_path / "data"), Plan("static", "", "Jekyll"), list[str]()
    folder = Folder(tmp_path, "")

    monkeypatch.setattr(debian, "release", lambda: "")
    with pytest.raises(BuildFailed, match="cannot get Jekyll"):
        toolchains.find(settings, folder, plan, said.append)

    monkeypatch.setattr(debian, "release", lambda: "bookworm")
    program = tmp_path / "data/toolchains/jekyll-bookworm/bin" / jekyll.SITE.name
    program.parent.mkdir(parents=True)
    program.write_text("of an earlier version")
    assert toolchains.find(settings, folder, plan, said.append).jekyll == tmp_path / "data/toolchains/jekyll-bookworm"
    assert program.read_bytes() == jekyll.SITE.read_bytes()
