"""Go modules: the version, and a build with the fetched toolchain."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.builds.app_support import release
from tests.runtime.builds.build_support import write_files

from moorage.runtime.builds.detection import go
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed

SERVER = """package main

import (
	"fmt"
	"net/http"
	"os"

	"example.test/words"
)

func main() {
	page, _ := os.ReadFile("static/page.txt")
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, words.Greeting, string(page)) })
	http.ListenAndServe(os.Getenv("HOST")+":"+os.Getenv("PORT"), nil)
}
"""


def test_a_module_for_a_newer_go_says_so(tmp_path: Path) -> None:
    folder = Folder(write_files(tmp_path, {"go.mod": "module x\n\ngo 1.21\n\ntoolchain go1.99.2\n"}), "")

    go.check_version(folder, "1.99.3")
    with pytest.raises(BuildFailed, match=r"go\.mod needs Go 1\.99\.2, and this platform builds with 1\.27\.3"):
        go.check_version(folder, "1.27.3")


@pytest.mark.deep
@pytest.mark.anyio
async def test_an_app_with_a_vendored_module_is_built_by_the_fetched_toolchain_and_runs(tmp_path: Path) -> None:
    files = {
        "go.mod": "module example.test/harbor\n\ngo 1.21\n\nrequire example.test/words v1.0.0\n",
        "main.go": SERVER,
        "static/page.txt": "a page",
        "vendor/modules.txt": "# example.test/words v1.0.0\n## explicit; go 1.21\nexample.test/words\n",
        "vendor/example.test/words/words.go": 'package words\n\nconst Greeting = "hello from "\n',
    }

    app = await release(tmp_path, files)

    assert await app.answer() == ("hello from a page", "")


@pytest.mark.deep
@pytest.mark.anyio
async def test_modules_that_cannot_be_downloaded_are_explained(tmp_path: Path) -> None:
    files = {
        "go.mod": "module x\n\ngo 1.21\n\nrequire example.invalid/words v1.0.0\n",
        "go.sum": "example.invalid/words v1.0.0 h1:" + "A" * 43 + "=\n",
        "main.go": 'package main\n\nimport _ "example.invalid/words"\n\nfunc main() {}\n',
    }

    with pytest.raises(BuildFailed, match=r"the build command .* failed: .*go mod (?:vendor|tidy)"):
        await release(tmp_path, files)
