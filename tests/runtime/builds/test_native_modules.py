"""Native modules are compiled with the headers of the machine and of Node.js."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from tests.runtime.builds.app_support import release
from tests.runtime.builds.build_support import Log, make_app_request, write_files

from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.ports import BuildFailed
from moorage.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.deep]

EXTENSION = """
#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *none) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "native", NULL, -1, methods};
PyMODINIT_FUNC PyInit_native(void) { return PyModule_Create(&module); }
"""
SETUP = """
from setuptools import Extension, setup
setup(name="native", version="1.0", ext_modules=[Extension("native", ["native.c"]%s)])
"""
ADDON = """
#include <node_api.h>
napi_value Init(napi_env env, napi_value exports) {
  napi_value answer;
  napi_create_int32(env, 42, &answer);
  napi_set_named_property(env, exports, "answer", answer);
  return exports;
}
NAPI_MODULE(NODE_GYP_MODULE_NAME, Init)
"""


def write_sdist(folder: Path, *, libraries: str = "") -> None:
    folder.mkdir()
    options = f", libraries=['{libraries}']" if libraries else ""
    info = "Metadata-Version: 2.1\nName: native\nVersion: 1.0\n"
    with tarfile.open(folder / "native-1.0.tar.gz", "w:gz") as archive:
        for name, text in {"setup.py": SETUP % options, "native.c": EXTENSION, "PKG-INFO": info}.items():
            entry = tarfile.TarInfo(f"native-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))


async def test_a_python_package_with_c_code_is_compiled(tmp_path: Path) -> None:
    write_sdist(tmp_path / "source")
    files = {"requirements.txt": "./native-1.0.tar.gz\n", "main.py": "import native; print(native.answer())"}

    app = await release(tmp_path, files)

    assert await app.run(["/bin/sh", "-c", "python main.py"], app.launch()) == ("42\n", "")


async def test_a_missing_library_is_named_with_its_debian_package(settings: Settings, tmp_path: Path) -> None:
    write_sdist(tmp_path / "source", libraries="portaudio")
    source = write_files(tmp_path / "source", {"requirements.txt": "./native-1.0.tar.gz\n", "main.py": ""})

    with pytest.raises(BuildFailed, match=r"the library portaudio is missing.*apt install portaudio19-dev"):
        await Builder(settings, is_sandboxed=True).build(make_app_request(source), Log())


@pytest.mark.parametrize(
    ("manager", "dependencies"),
    [("npm@11.0.0", {}), ("pnpm@10.12.1", {}), ("npm@11.0.0", {"node-gyp": "8.4.1"})],
    ids=["npm", "pnpm", "own node-gyp"],
)
async def test_an_addon_of_node_is_compiled_without_a_download_of_headers(
    tmp_path: Path, manager: str, dependencies: dict[str, str]
) -> None:
    scripts = {"start": "node main.js", "install": "node-gyp rebuild"}
    package = {"name": "addon", "version": "1.0.0", "scripts": scripts, "packageManager": manager}
    files = {
        "package.json": {**package, "dependencies": dependencies},
        "binding.gyp": "{'targets': [{'target_name': 'addon', 'sources': ['addon.c']}]}",
        "addon.c": ADDON,
        "main.js": "console.log(require('./build/Release/addon.node').answer)",
    }

    app = await release(tmp_path, files)

    assert "gyp http" not in app.log.text("stdout", "stderr")
    assert await app.run(["/bin/sh", "-c", "node main.js"], app.launch()) == ("42\n", "")
