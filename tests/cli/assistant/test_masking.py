"""Credentials are masked by name and by shape, and answers have a bounded size."""

from __future__ import annotations

import json

import pytest

from moorage.cli.assistant import answers
from moorage.cli.assistant.masking import Guard, is_secret_name
from moorage.client.errors import BadRequest, NotFound

GUARD = Guard(["the-token-of-this-server"])


@pytest.mark.parametrize(
    "text",
    [
        "DATABASE_URL=postgresql://app:hunter2@127.0.0.1:5432/app",
        "connecting to mysql://root:hunter2@db/x?ssl=1",
        "password=hunter2",
        'config {"apiKey": "hunter2", "port": 1}',
        "STRIPE_SECRET: hunter2",
        "Authorization: Bearer hunter2hunter2",
        "pushed with psk_live_hunter2",
        "key ghp_hunter2hunter2hunter2",
        "session eyJhbGciOiJIUzI1.hunter2.c2ln",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_a_credential_in_a_text_is_masked(text: str) -> None:
    assert "hunter2" not in GUARD.text(text)
    assert "****" in GUARD.text(text)


def test_the_token_of_the_server_is_masked_in_any_encoding() -> None:
    assert "this-server" not in GUARD.text("got the-token-of-this-server, %74he-token and the-token-of-this-server")


def test_ordinary_text_stays_as_it_is() -> None:
    text = "GET /tokens 200, see https://example.com:8080/a?b=c and user@example.com at 12:30"

    assert GUARD.text(text) == text


@pytest.mark.parametrize("part", ["x", "a.", "a://b:", "eyJ-", "token", "Bearer ", "-----BEGIN PRIVATE KEY-----"])
def test_masking_takes_time_in_proportion_to_the_length(part: str) -> None:
    assert len(GUARD.text(part * 50_000)) > 0  # a rule with nested repetitions would take hours


def test_names_say_which_fields_are_credentials() -> None:
    secret = ("DB_PASSWORD", "apiKey", "access_token", "clientSecret", "SENTRY_DSN", "stripe_key", "Authorization")
    plain = ("NODE_ENV", "key", "monkey", "passengers", "author", "KEYBOARD", "port")

    assert [name for name in secret if not is_secret_name(name)] == []
    assert [name for name in plain if is_secret_name(name)] == []


def test_fields_variables_and_columns_are_masked_and_flags_are_not() -> None:
    data = {
        "env": [{"name": "API_TOKEN", "value": "hunter2"}, {"name": "PORT", "value": "80"}],
        "rows": [{"id": 1, "password_hash": "hunter2"}],
        "passwordAvailable": True,
        "tier": {"key": "micro"},
    }

    masked = json.loads(answers.as_json(data, GUARD))

    assert masked == {
        "env": [{"name": "API_TOKEN", "value": "****"}, {"name": "PORT", "value": "80"}],
        "rows": [{"id": 1, "password_hash": "****"}],
        "passwordAvailable": True,
        "tier": {"key": "micro"},
    }


def test_a_long_list_loses_its_last_items_and_stays_json() -> None:
    rows = [{"number": number, "text": "x" * 100} for number in range(1000)]

    text = answers.as_json({"columns": ["number", "text"], "rows": rows}, GUARD)
    shown = json.loads(text)

    assert len(text) <= answers.MAX_CHARS
    assert shown["rows"] == rows[: len(shown["rows"])]
    assert shown["leftOut"] == 1000 - len(shown["rows"]) > 0


def test_a_long_text_is_cut() -> None:
    assert len(answers.as_json({"result": "x" * 100_000}, GUARD)) < 2 * answers.MAX_LINE_CHARS
    assert len(answers.as_json(["x" * 100_000], GUARD)) < answers.MAX_CHARS + 100


def test_a_long_log_keeps_its_newest_lines() -> None:
    log = answers.as_log([f"line {number}" for number in range(10_000)], GUARD, empty="")

    assert len(log) < answers.MAX_CHARS + 200
    assert log.splitlines()[-1] == "line 9999"
    assert "earlier lines are left out" in log.splitlines()[0]


def test_an_error_has_its_fields_its_trace_id_and_a_next_step() -> None:
    wrong = answers.explain(BadRequest(400, "Invalid", {"password": "must have 8 characters"}, "abc"), GUARD)
    missing = answers.explain(NotFound(404, "There is no project x", {}, "abc"), GUARD)

    assert wrong.splitlines() == ["Invalid", "password: must have 8 characters", "trace id: abc"]
    assert missing.splitlines()[-1].startswith("next: list the resources")
