"""Variables with secrets of an app, found in its sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import make_request, write_files

from moorage.runtime.builds.detection import detect, secret_names
from moorage.runtime.builds.detection.reading import Folder


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SECRET_KEY = os.environ['SECRET_KEY']", ["SECRET_KEY"]),
        ("key = os.environ.get('DJANGO_SECRET_KEY')", ["DJANGO_SECRET_KEY"]),
        ("key = os.getenv('JWT_SECRET_KEY')", ["JWT_SECRET_KEY"]),
        ("SECRET_KEY = config('SECRET_KEY')", ["SECRET_KEY"]),
        ("SECRET_KEY: SecretStr = config('SECRET_KEY', cast=SecretStr)", ["SECRET_KEY"]),
        ("SECRET_KEY = config('SECRET_KEY', default='x', cast=str)", []),
        ("SECRET_KEY = env.str(\n    'SECRET_KEY'\n)", ["SECRET_KEY"]),
        ("class Settings(BaseSettings):\n    secret_key: str\n    jwt_secret: str = 'x'\n", ["SECRET_KEY"]),
        ("SECRET_KEY = os.environ.get('SECRET_KEY', 'for development')", []),
        ("SECRET_KEY = os.environ.get('SECRET_KEY') or 'for development'", []),
        ("key = settings['SECRET_KEY'], os.environ['STRIPE_SECRET_KEY']", []),
    ],
)
def test_python_reads_a_secret_without_a_default(tmp_path: Path, text: str, names: list[str]) -> None:
    write_files(tmp_path, {"shop/settings.py": text})

    assert list(secret_names.find(Folder(tmp_path, ""), "python")) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("app.use(session({ secret: process.env.SESSION_SECRET }))", ["SESSION_SECRET"]),
        ("jwt.sign(user, process.env.JWT_SECRET as string)", ["JWT_SECRET"]),
        ("const key = process.env['COOKIE_SECRET']", ["COOKIE_SECRET"]),
        ("const env = z.object({ JWT_SECRET: z.string().min(32) })", ["JWT_SECRET"]),
        ("cleanEnv(process.env, { APP_SECRET: str() })", ["APP_SECRET"]),
        ("const key = process.env.SESSION_SECRET || 'for development'", []),
        ("const key = process.env.SESSION_SECRET ?? 'for development'", []),
        ("const env = z.object({ JWT_SECRET: z.string().default('x') })", []),
        ("process.env.JWT_SECRET = 'test'; process.env.STRIPE_JWT_SECRET", []),
    ],
)
def test_node_reads_a_secret_without_a_default(tmp_path: Path, text: str, names: list[str]) -> None:
    write_files(tmp_path, {"src/config/env.ts": text, "node_modules/x/index.js": "process.env.SECRET_KEY"})

    assert list(secret_names.find(Folder(tmp_path, ""), "nodejs")) == names


@pytest.mark.parametrize(
    ("files", "keys"),
    [
        ({}, ("SESSION_SECRET",)),
        ({".env": "PORT=3000\nexport SESSION_SECRET=abc\n"}, ()),
        ({"package.json": {"dependencies": {"nuxt-auth-utils": "1"}}}, ("NUXT_SESSION_PASSWORD", "SESSION_SECRET")),
    ],
    ids=["sources", "a committed .env", "a package"],
)
def test_an_app_gets_random_values_for_its_secrets(
    tmp_path: Path, files: dict[str, Any], keys: tuple[str, ...]
) -> None:
    write_files(tmp_path, {"server.js": "serve(process.env.SESSION_SECRET).listen(1)", "package.json": {}, **files})
    request = make_request(tmp_path, wanted="auto")

    plan = detect.make_plan(request, detect.open_base(request))

    assert plan.keys == keys
    assert any("random value" in note for note in plan.notes) == bool(keys)
