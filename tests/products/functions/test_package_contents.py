"""Contents of a package: main file, missing dependencies and packed bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.products.functions.support import NODE

from moorage.products.functions import contents, packages
from moorage.products.functions.contents import BadPackage


def folder_with(tmp_path: Path, files: Mapping[str, str | bytes]) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
        else:
            path.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize(
    ("runtime", "files", "main"),
    [
        ("nodejs", {"index.js": ""}, "index.js"),
        ("nodejs", {"index.mjs": ""}, "index.mjs"),
        ("nodejs", {"index.cjs": "", "main.py": ""}, "index.cjs"),
        ("nodejs", {"index.js": "", "package.json": '{"name": "x"}'}, "index.js"),
        ("nodejs", {"index.js": "", "lib/app.js": "", "package.json": '{"main": "lib/app.js"}'}, "lib/app.js"),
        ("nodejs", {"lib/app.js": "", "package.json": '{"main": "./lib/app"}'}, "lib/app.js"),
        ("nodejs", {"lib/index.js": "", "package.json": '{"main": "lib/"}'}, "lib/index.js"),
        ("nodejs", {"index.js": "", "package.json": '{"main": "missing.js"}'}, "index.js"),
        ("nodejs", {"index.js": "", "package.json": '{"main": "../../etc/passwd"}'}, "index.js"),
        ("nodejs", {"index.js": "", "package.json": '{"main": "/etc/passwd"}'}, "index.js"),
        ("nodejs", {"index.js": "", "package.json": '{"main": 7}'}, "index.js"),
        ("nodejs", {"index.js": "", "package.json": '{"main": "' + "a" * 300 + '"}'}, "index.js"),
        ("nodejs", {"index.js": "", "package.json": '{"main": "' + "a/" * 3000 + '"}'}, "index.js"),
        ("nodejs", {"index.js": "", "package.json": r'{"main": "a\u0000b"}'}, "index.js"),
        ("nodejs", {"index.js": "", "package.json": r'{"main": "\ud800"}'}, "index.js"),
        ("nodejs", {"index.js": "", "package.json": b'\xef\xbb\xbf{"main": "index.js"}'}, "index.js"),
        ("python", {"main.py": "", "__main__.py": "", "index.js": ""}, "main.py"),
        ("python", {"__main__.py": ""}, "__main__.py"),
        ("python", {"main.py": "", "package.json": "not json"}, "main.py"),
    ],
)
def test_the_main_file_is_found(tmp_path: Path, runtime: str, files: dict[str, str], main: str) -> None:
    folder = folder_with(tmp_path, files)

    assert contents.find_main(folder, f"{runtime}:1") == main


@pytest.mark.parametrize(
    ("runtime", "files", "says"),
    [
        ("nodejs", {"readme.txt": ""}, "index.js"),
        ("python", {"readme.txt": ""}, "main.py"),
        ("python", {"src/main.py": "", "src/x.py": "", "readme.txt": ""}, "main.py"),
        ("nodejs", {"main.py": ""}, "Python package"),
        ("python", {"index.js": ""}, "Node.js package"),
        ("python", {"app.js": "", "package.json": '{"main": "app.js"}'}, "Node.js package"),
        ("nodejs", {"index.js": "", "package.json": "{"}, "package.json"),
        ("nodejs", {"index.js": "", "package.json": "[]"}, "package.json"),
        ("nodejs", {"index.js": "", "package.json": "[" * 100_000}, "package.json"),
        ("nodejs", {"index.js": "", "package.json": b"\xff\xfe"}, "package.json"),
        ("nodejs", {"index.js": "", "package.json": '{"dependencies": ["left-pad"]}'}, "dependencies"),
    ],
)
def test_a_package_without_a_main_file_of_its_language_is_refused(
    tmp_path: Path, runtime: str, files: dict[str, str], says: str
) -> None:
    folder = folder_with(tmp_path, files)

    with pytest.raises(BadPackage, match=says):
        contents.find_main(folder, f"{runtime}:1")


@pytest.mark.parametrize(
    ("runtime", "files", "needs"),
    [
        ("nodejs", {}, False),
        ("nodejs", {"package.json": "{}"}, False),
        ("nodejs", {"package.json": '{"dependencies": {}}'}, False),
        ("nodejs", {"package.json": '{"devDependencies": {"jest": "1"}}'}, False),
        ("nodejs", {"package.json": '{"dependencies": {"ms": "2"}}'}, True),
        ("nodejs", {"package.json": '{"dependencies": {"ms": "2"}}', "node_modules/ms/index.js": ""}, False),
        ("nodejs", {"requirements.txt": "six"}, False),
        ("python", {}, False),
        ("python", {"requirements.txt": ""}, False),
        ("python", {"requirements.txt": "# nothing\n\n   \n--no-binary :all:\n"}, False),
        ("python", {"requirements.txt": "six==1.16.0"}, True),
        ("python", {"requirements.txt": "-r more.txt"}, True),
        ("python", {"requirements.txt": "git+https://example.com/x.git"}, True),
        ("python", {"requirements.txt": "six", "six.py": ""}, False),
        ("python", {"requirements.txt": "six>=1; python_version > '3'", "six.py": ""}, False),
        ("python", {"requirements.txt": "Foo-Bar[extra] ~= 1", "foo_bar/__init__.py": ""}, False),
        ("python", {"requirements.txt": "six\nattrs", "six.py": ""}, True),
        ("python", {"requirements.txt": "six", "helpers/__init__.py": ""}, True),
        ("python", {"requirements.txt": "PyYAML", "yaml/__init__.py": "", "PyYAML-6.0.dist-info/RECORD": ""}, False),
        ("python", {"requirements.txt": "six", "packages/six.py": ""}, False),
        ("python", {"requirements.txt": "six", "virtualenv/bin/activate_this.py": ""}, False),
        ("python", {"requirements.txt": "six", ".venv/pyvenv.cfg": ""}, False),
        ("python", {"requirements.txt": "six", "lib/python3.11/site-packages/six.py": ""}, False),
    ],
)
def test_dependencies_are_installed_where_they_are_named_and_not_brought(
    tmp_path: Path, runtime: str, files: dict[str, str], needs: bool
) -> None:
    folder = folder_with(tmp_path, files)

    assert contents.needs_install(folder, f"{runtime}:1") is needs


def test_packing_the_same_folder_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, {**NODE, "lib/a.js": "1", "empty/": ""})

    packages.pack(folder, tmp_path / "one.zip")
    os.utime(folder / "index.js", (0, 0))
    packages.pack(folder, tmp_path / "two.zip")

    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
