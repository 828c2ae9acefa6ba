"""Variables of an example such as .env.example: those that the code requires, and their values."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.builds.build_support import make_app_request, write_files

from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.values import own_address, variables

ZOD = "import { z } from 'zod';\nexport const env = z.object({\n  %s\n}).parse(process.env);\n"

# A `devDefault` does not count in production, which the platform sets.
ENVALID = "import { cleanEnv, str } from 'envalid';\nexport const env = cleanEnv(process.env, {\n  %s\n});\n"

CHECKED = (
    "import { IsString } from 'class-validator';\nclass Env {\n  %s\n}\nvalidateSync(toClass(Env, process.env));\n"
)


@pytest.mark.parametrize(
    ("example", "text", "found"),
    [
        ("HARBOR_MODE=deep\n", ZOD % "HARBOR_MODE: z.string(),", {"HARBOR_MODE": "deep"}),
        ("HARBOR_MODE='deep sea' # of ships\n", ZOD % "HARBOR_MODE: z.string(),", {"HARBOR_MODE": "deep sea"}),
        ("HARBOR_MODE=deep # of ships\n", ZOD % "HARBOR_MODE: z.string(),", {"HARBOR_MODE": "deep"}),
        ("HARBOR_MODE=deep\n", ZOD % "HARBOR_MODE: z.string().default('low'),", {}),
        ("HARBOR_MODE=deep\n", ZOD % "HARBOR_MODE: z.string().optional(),", {}),
        ("HARBOR_MODE=deep\n", ENVALID % "HARBOR_MODE: str({ default: 'low' }),", {}),
        ("HARBOR_MODE=deep\n", ENVALID % "HARBOR_MODE: str({ devDefault: 'low' }),", {"HARBOR_MODE": "deep"}),
        ("HARBOR_MODE=deep\n", "const mode = process.env.HARBOR_MODE", {}),
        ("HARBOR_MODE=deep\n", "if (!process.env.HARBOR_MODE) {\n  process.exit(1)\n}", {"HARBOR_MODE": "deep"}),
        ("HARBOR_MODE=deep\n", "export const mode = process.env.HARBOR_MODE!", {"HARBOR_MODE": "deep"}),
        ("DB_PASSWORD=changethis\n", ZOD % "DB_PASSWORD: z.string(),", {"DB_PASSWORD": ""}),
        ("TIDE_API_KEY=abc\n", ZOD % "TIDE_API_KEY: z.string(),", {}),
        ("TIDE_URL=****\nSEA_URL=\n", ZOD % "TIDE_URL: z.string(),\n  SEA_URL: z.string(),", {}),
        ("PORT=3000\n", ZOD % "PORT: z.coerce.number(),", {}),
        ("JWT_TOKEN_EXPIRES_IN=15m\n", ZOD % "JWT_TOKEN_EXPIRES_IN: z.string(),", {"JWT_TOKEN_EXPIRES_IN": "15m"}),
        ("FROM=no@example.com\n", ZOD % "FROM: z.string(),", {"FROM": "no@example.com"}),
        ("MODE=deep\nTIDE=\n", CHECKED % "@IsIn()\n  MODE: string;\n  @Length(1)\n  TIDE: string;", {"MODE": "deep"}),
        ("MODE=deep\n", CHECKED % "@IsString()\n  @IsOptional()\n  MODE: string;", {}),
        ("MODE=a\n", "interface Env {\n  MODE: string;\n}\n" + CHECKED % "@IsString()\n  MODE: string;", {"MODE": "a"}),
        ("MODE=a\n", CHECKED % "@IsOptional()\n  TIDE: string;\n  @Length(\n  1)\n  MODE: string;", {"MODE": "a"}),
    ],
)  # fmt: skip
def test_node_requires_variables(tmp_path: Path, example: str, text: str, found: dict[str, str]) -> None:
    write_files(tmp_path, {".env.example": example, "src/env.ts": text, "package.json": "{}"})

    assert variables.required(Folder(tmp_path, ""), "nodejs") == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mode = os.environ['HARBOR_MODE']", {"HARBOR_MODE": "deep"}),
        ("mode = config('HARBOR_MODE', cast=str)", {"HARBOR_MODE": "deep"}),
        ("mode = env.str('HARBOR_MODE')", {"HARBOR_MODE": "deep"}),
        ("class Harbor(BaseSettings):\n    harbor_mode: str\n", {"HARBOR_MODE": "deep"}),
        ("class Harbor(BaseSettings):\n    harbor_mode: str = 'low'\n", {}),
        ("mode = config('HARBOR_MODE', default='low')", {}),
        ("mode = os.environ.get('HARBOR_MODE')", {}),
        ("mode = os.environ.get('HARBOR_MODE').split(' ')", {"HARBOR_MODE": "deep"}),
        ("mode = int(os.getenv('HARBOR_MODE'))", {"HARBOR_MODE": "deep"}),
    ],
)
def test_python_requires_variables(tmp_path: Path, text: str, found: dict[str, str]) -> None:
    write_files(tmp_path, {".env.example": "HARBOR_MODE=deep\n", "shop/settings.py": text})

    assert variables.required(Folder(tmp_path, ""), "python") == found


def test_the_example_of_a_repository_counts_for_an_app_in_a_folder(tmp_path: Path) -> None:
    write_files(tmp_path, {".env.dev-sample": "HARBOR_MODE=deep\n", "app/main.py": "os.environ['HARBOR_MODE']"})

    assert variables.required(Folder(tmp_path, "app"), "python") == {"HARBOR_MODE": "deep"}


def test_a_plan_has_the_values_that_the_repository_does_not_set(tmp_path: Path) -> None:
    server = "const mode = process.env.HARBOR_MODE!, name = process.env.HARBOR_NAME!, key = process.env.QUAY_PASSWORD!"
    files = {
        "package.json": {"scripts": {"start": "node server.js"}},
        "server.js": server,
        ".env.sample": "HARBOR_MODE=deep\nHARBOR_NAME=west\nQUAY_PASSWORD=quay\nTIDES=low\n",
        ".env": "HARBOR_NAME=east\n",
    }
    write_files(tmp_path, files)
    request = make_app_request(tmp_path)

    plan = detect.make_plan(request, detect.open_base(request))

    assert plan.values == (("HARBOR_MODE", "deep"),)
    assert plan.keys == ("QUAY_PASSWORD",)
    assert plan.variables == ("HARBOR_MODE", "QUAY_PASSWORD", "TIDES")
    assert any("HARBOR_MODE has the value of the repository's example" in note for note in plan.notes)


def test_of_several_examples_one_without_a_mongodb_is_used(tmp_path: Path) -> None:
    files = {"env-example-document": "URL=mongodb://mongo:27017\n", "env-example-relational": "MODE=deep\n"}
    write_files(tmp_path, files)

    assert variables.named(Folder(tmp_path, "")) == {"MODE": "deep"}


def test_a_compose_file_stands_for_a_missing_example(tmp_path: Path) -> None:
    compose = "services:\n  web:\n    environment:\n      - HARBOR_MODE=deep\n      - SIZE=${SIZE}\n      QUAY: east\n"
    write_files(tmp_path, {"docker-compose.yml": compose, "app.py": "mode = os.environ['HARBOR_MODE']"})

    assert variables.named(Folder(tmp_path, "")) == {"HARBOR_MODE": "deep", "QUAY": "east"}
    assert variables.required(Folder(tmp_path, ""), "python") == {"HARBOR_MODE": "deep"}


def test_a_committed_file_of_variables_that_the_server_does_not_read_is_read_for_it(tmp_path: Path) -> None:
    env = {".env": "HARBOR_MODE=deep\nSECRET_KEY=known\nFLASK_DEBUG=1\nEMPTY=\nPORT=5000\n"}
    write_files(tmp_path / "unread", {**env, "app.py": "import os", "manage.py": "from dotenv import load_dotenv"})
    write_files(tmp_path / "read", {**env, "app.py": "from dotenv import load_dotenv"})

    assert variables.unread(Folder(tmp_path / "unread", "")) == {"HARBOR_MODE": "deep", "SECRET_KEY": ""}
    assert variables.unread(Folder(tmp_path / "read", "")) == {}


def test_variables_with_addresses_of_other_servers_are_found_in_the_code(tmp_path: Path) -> None:
    write_files(
        tmp_path, {"db.js": "connect(process.env.MONGO_URI); cache(process.env['REDIS_URL'], process.env.MODE)"}
    )

    assert variables.addresses(Folder(tmp_path, ""), "nodejs") == ("MONGO_URI", "REDIS_URL")


def test_without_a_variable_the_file_with_the_address_of_a_server_is_named(tmp_path: Path) -> None:
    write_files(tmp_path, {"bin/www": "connect('mongodb+srv://harbor.example/ships')", "app.js": "listen(1)"})

    assert variables.addresses(Folder(tmp_path, ""), "nodejs") == ("bin/www",)


@pytest.mark.parametrize(
    ("example", "text", "found"),
    [
        ("NEXTAUTH_URL=http://localhost:3000\n", ZOD % "NEXTAUTH_URL: z.string(),", {"NEXTAUTH_URL": "{url}"}),
        ("VITE_APP_URL=http://localhost:3000/\n", ZOD % "VITE_APP_URL: z.url(),", {"VITE_APP_URL": "{url}"}),
        ("APP_DOMAIN=localhost:3000\n", ZOD % "APP_DOMAIN: z.string(),", {"APP_DOMAIN": "{host}"}),
        ("SITE_URL=https://harbor.example.net\n", ZOD % "SITE_URL: z.string(),", {}),
        ("API_URL=http://localhost:4000\n", ZOD % "API_URL: z.string(),", {}),
        ("SITE_URL=http://localhost:3000/api\n", ZOD % "SITE_URL: z.string(),", {}),
        ("SITE_URL=http://localhost:3000\n", ZOD % "SITE_URL: z.string().optional(),", {}),
    ],
)  # fmt: skip
def test_a_required_address_of_a_development_server_becomes_that_of_the_project(
    tmp_path: Path, example: str, text: str, found: dict[str, str]
) -> None:
    write_files(
        tmp_path, {".env.example": example, "server.ts": text, "package.json": {"scripts": {"start": "node ."}}}
    )
    request = make_app_request(tmp_path)

    plan = detect.make_plan(request, detect.open_base(request))

    assert dict(plan.own_addresses) == found
    assert not set(found) & {name for name, _ in plan.values}
    assert any("the address of the project" in note for note in plan.notes) == bool(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("name = os.environ['SERVER_NAME']", {"SERVER_NAME": "{host}"}),
        ("url = os.environ['SITE_URL']", {"SITE_URL": "{url}"}),
        ("os.environ['SITE_URL'] = 'x'", {}),
        ("hosts = config('ALLOWED_HOSTS', cast=Csv())", {"ALLOWED_HOSTS": "{hostname}"}),
        ("hosts = config('ALLOWED_HOSTS', default='', cast=Csv())", {}),
        ("name = os.environ.get('SERVER_NAME')", {}),
        ("name = os.environ['DATABASE_URL'], os.environ['MAIL_SERVER']", {}),
    ],
)
def test_a_python_app_gets_its_own_address_without_an_example(tmp_path: Path, text: str, found: dict[str, str]) -> None:
    write_files(tmp_path, {"config.py": f"import os\n{text}\n"})

    assert own_address.templates(Folder(tmp_path, ""), "python", {}) == found


def test_templates_of_addresses_are_filled() -> None:
    found = (("SITE_URL", "{url}"), ("SERVER_NAME", "{host}"), ("ALLOWED_HOSTS", "{hostname}"))

    filled = own_address.fill(found, "http://shop.localhost:8081")

    hosts = {"SERVER_NAME": "shop.localhost:8081", "ALLOWED_HOSTS": "shop.localhost"}
    assert filled == {"SITE_URL": "http://shop.localhost:8081", **hosts}
