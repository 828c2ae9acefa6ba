"""`moorage functions dev`: reload on save, logs, errors, variables."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.functions.dev_server import LANGUAGES, MAIN, dev, folder_of, save
from tests.cli.terminal import run_in_terminal
from tests.command import environment
from tests.e2e.functions_support import wait_until

from moorage.cli.dev import dotenv

WORD = {
    "nodejs": "exports.main = () => ({{ statusCode: 200, body: '{word}' }});\n",
    "python": "def main(params):\n    return {{'statusCode': 200, 'body': '{word}'}}\n",
}
BROKEN = {"nodejs": "exports.main = () => {{;\n", "python": "def main(params):\n    return (\n"}
FAILING = {
    "nodejs": "function inner() { throw new Error('no boat'); }\nexports.main = () => inner();\n",
    "python": "def inner():\n    raise ValueError('no boat')\n\ndef main(params):\n    inner()\n",
}
VARIABLES = {
    "nodejs": "exports.main = (params) => ({ statusCode: 200, body: "
    "`${process.env.ONE} ${process.env.TWO} ${params.ONE} ${process.env.MOORAGE_TOKEN}` });\n",
    "python": "import os\n\ndef main(params):\n    e = os.environ.get\n"
    "    return {'statusCode': 200, 'body': f\"{e('ONE')} {e('TWO')} {params['ONE']} {e('MOORAGE_TOKEN')}\"}\n",
}
SLOW = {
    "nodejs": "const fs = require('fs');\nexports.main = async ({ until }) => {\n  console.log('first');\n"
    "  while (!fs.existsSync(until)) await new Promise((done) => setTimeout(done, 20));\n"
    "  console.error('last');\n  return { statusCode: 200, body: 'done' };\n};\n",
    "python": "import os, sys, time\n\ndef main(params):\n    print('first')\n"
    "    while not os.path.exists(params['until']):\n        time.sleep(0.02)\n"
    "    print('last', file=sys.stderr)\n    return {'statusCode': 200, 'body': 'done'}\n",
}
PID = "import os\n\ndef main(params):\n    return {'statusCode': 200, 'body': str(os.getpid())}\n"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_saved_file_is_served_and_broken_code_shows_its_place_until_it_is_mended(
    tmp_path: Path, language: str
) -> None:
    folder = folder_of(tmp_path, language, WORD[language].format(word="one"))
    main = folder / MAIN[language]

    with dev(folder) as server:
        first = server.text()
        save(main, WORD[language].format(word="two"))
        server.wait_for("loaded " + MAIN[language] + " again")
        second = server.text()
        save(main, BROKEN[language])
        server.wait_for("the code cannot be loaded:")
        broken = server.send("GET", "/")
        save(main, WORD[language].format(word="four"))
        server.wait_for("again", times=2)
        mended = server.text()
        output = server.output

    assert (first, second, mended) == ("one", "two", "four")
    assert broken.status == 502
    assert "SyntaxError" in broken.error["message"]
    assert f"{MAIN[language]}" in output.partition("the code cannot be loaded:")[2]
    assert output.count("the code cannot be loaded:") == 1
    assert "GET / 502" in output


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_exception_is_printed_with_its_stack_and_the_request_is_502(tmp_path: Path, language: str) -> None:
    folder = folder_of(tmp_path, language, FAILING[language])

    with dev(folder) as server:
        answer = server.send("GET", "/boats?size=3")
        server.wait_for("GET /boats?size=3 502")
        output = server.output

    assert "no boat" in answer.error["message"]
    assert "inner" in output
    assert str(folder / MAIN[language]) in output


@pytest.mark.parametrize("language", LANGUAGES)
def test_variables_come_from_the_env_file_and_the_option_and_not_from_the_shell(tmp_path: Path, language: str) -> None:
    folder = folder_of(tmp_path, language, VARIABLES[language])
    (folder / ".env").write_text("# ours\nexport ONE='a b'\nTWO=two # of the file\n")

    with dev(folder, "--env", "TWO=given", MOORAGE_TOKEN="secret") as server:
        before = server.text()
        save(folder / ".env", 'ONE="c\\nd"\n')
        server.wait_for("loaded .env again")
        after = server.text()

    assert before.split(" ")[:4] == ["a", "b", "given", "a"]
    assert "secret" not in before
    assert after.startswith("c\nd given c\nd")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_output_of_a_call_is_printed_while_it_runs_and_once(tmp_path: Path, language: str) -> None:
    folder = folder_of(tmp_path, language, SLOW[language])
    until = tmp_path / "until"
    command = [sys.executable, "-c", "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"]

    with dev(folder) as server:
        url = f"http://127.0.0.1:{server.port}/?until={until}"
        with subprocess.Popen([*command, url], stdout=subprocess.PIPE, text=True) as caller:
            server.wait_for("  first\n")
            is_answered = caller.poll() is not None
            until.touch()
            answer = caller.communicate()[0].strip()
        server.wait_for("GET /?until=")
        output = server.output

    assert not is_answered
    assert answer == "done"
    assert output.count("first") == output.count("last") == 1
    assert output.index("first") < output.index("last") < output.index("GET /?until=")


def test_a_call_past_its_timeout_is_ended(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path, "python", "import time\n\ndef main(params):\n    print('begun')\n    time.sleep(600)\n"
    )

    with dev(folder, "--timeout", "1000") as server:
        answer = server.send("GET", "/")
        server.wait_for("GET / 502")

        assert answer.error["message"] == "the function ran past its 1000 ms timeout"
        assert server.output.count("begun") == 1


def test_a_file_that_is_added_or_removed_counts_and_a_folder_of_caches_does_not(tmp_path: Path) -> None:
    code = "import os\n\ndef main(params):\n    return {'statusCode': 200, 'body': ','.join(sorted(os.listdir('.')))}\n"
    folder = folder_of(tmp_path, "python", code)

    with dev(folder) as server:
        (folder / "__pycache__").mkdir()
        (folder / "data.txt").write_text("1")
        server.wait_for("loaded data.txt again")
        listed = server.text()
        (folder / "data.txt").unlink()
        server.wait_for("loaded data.txt again", times=2)

        assert "data.txt" in listed
        assert "pycache" not in server.output


def test_without_a_main_file_the_version_before_stays(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "python", WORD["python"].format(word="kept"))

    with dev(folder) as server:
        (folder / "main.py").rename(tmp_path / "moved.py")
        server.wait_for("not loaded: the folder has no main file")
        (tmp_path / "moved.py").rename(folder / "main.py")
        server.wait_for("loaded main.py again")

        assert server.text() == "kept"


def test_ctrl_c_ends_the_server_with_its_workers(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "python", PID)

    with dev(folder) as server:
        pid = int(server.text())
        code = server.stop()

    assert code == 0
    wait_until(lambda: not _is_running(pid))


def test_the_end_of_the_server_by_a_kill_ends_its_workers(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "python", PID)

    with dev(folder) as server:
        pid = int(server.text())
        server.process.send_signal(signal.SIGKILL)

        wait_until(lambda: not _is_running(pid))


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"readme.txt": "nothing"}, "has no main file of a function"),
        ({"main.py": "", ".env": "just words\n"}, ".env, line 1: expected NAME=VALUE"),
        ({"main.py": "", ".env": "__OW_X=1\n"}, "names that start with __OW_"),
        ({"package.json": "[", "index.js": ""}, "package.json that is not valid JSON"),
    ],
)
def test_a_folder_that_cannot_be_served_is_explained(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    done = subprocess.run(
        [sys.executable, "-m", "moorage.cli.main", "functions", "dev", str(tmp_path), "--port", "0"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )

    assert done.returncode == 1
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_server_the_command_names_the_extra(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "python", WORD["python"].format(word="x"))
    program = (
        "import importlib.util, sys\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'httptools' else find(name, *rest)\n"
        f"sys.argv = ['moorage', 'functions', 'dev', {str(folder)!r}]\n"
        "from moorage.cli.main import main\nmain()\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment())

    assert done.returncode == 1
    assert "pip install 'moorage[server]'" in done.stderr


def test_on_a_terminal_errors_have_colours_and_ctrl_c_ends(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "python", "def main(params):\n    return (\n")
    command = ["functions", "dev", str(folder), "--port", "0"]

    shown = run_in_terminal(command, env=environment(), keys={"was never closed (main.py": "\x03"})

    assert shown.code == 0
    assert "serving hello (python:" in shown.text
    assert "\x1b[31" in shown.raw
    assert "Traceback (most recent call last)" not in shown.text


def test_a_port_in_use_is_named_and_the_default_port_is_not_needed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "python", WORD["python"].format(word="x"))
    command = [sys.executable, "-m", "moorage.cli.main", "functions", "dev", str(folder), "--port"]

    with dev(folder) as server:
        done = subprocess.run(
            [*command, str(server.port)], capture_output=True, text=True, env=environment(), timeout=60
        )

    assert done.returncode == 1
    assert "cannot listen on 127.0.0.1" in done.stderr
    assert "choose another port with --port" in done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\nB = two words \n", {"A": "1", "B": "two words"}),
        ("export A='x # y'\nB=x # y\n", {"A": "x # y", "B": "x"}),
        ('A="line\\nnext \\"q\\" \\$x"\n', {"A": 'line\nnext "q" $x'}),
        ("\ufeffA=\n\n# note\nB=a=b\n", {"A": "", "B": "a=b"}),
    ],
)
def test_an_env_file_is_read_as_common_tools_write_it(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    (tmp_path / ".env").write_text(text, encoding="utf-8")

    assert dotenv.read(tmp_path / ".env") == expected


def test_a_broken_env_file_is_refused_without_its_values(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text('KEY="secret value\n')

    with pytest.raises(dotenv.BadEnvFile, match="line 1: the quote is not closed") as caught:
        dotenv.read(tmp_path / ".env")
    assert "secret" not in str(caught.value)


@pytest.mark.boundary("stranger-to-user", "No web page reads answers of `moorage functions dev` by DNS rebinding.")
def test_a_request_to_a_host_name_of_others_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "python", WORD["python"].format(word="private"))
    own = [
        "localhost",
        "LOCALHOST:1",
        "org-1.localhost:1",
        "localhost.",
        "127.0.0.1",
        "192.0.2.7:1",
        "[::1]:1",
        "[::1]",
    ]
    foreign = [
        "attacker.example",
        "attacker.example:8787",
        "localhost.attacker.example",
        "127.0.0.1.nip.example",
        "0x7f.1",
    ]

    with dev(folder) as server:
        served = [server.send("GET", "/default/hello", headers={"Host": each}).status for each in own]
        refused = [
            server.send(method, "/", headers={"Host": each})
            for each in foreign
            for method in ("GET", "OPTIONS", "POST")
        ]

    assert served == [200] * len(own)
    assert [each.status for each in refused] == [403] * len(refused)
    assert not any(b"private" in each.body for each in refused)
    assert "start `moorage functions dev` with --host NAME" in refused[0].error["message"]
