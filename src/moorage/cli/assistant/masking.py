"""Masks credentials in everything that the assistant gets: by the name of a field, and by their shape in texts.

The platform masks the values of secrets in logs. These rules also cover credentials that a user stored as an ordinary
variable, and rows of a database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from moorage.core.kit.masking import MASK, Masker

# Names of variables, columns and fields whose values are credentials. `key` alone is not: tiers have one.
_NAME = re.compile(
    r"passw(or)?d|passphrase|secret|token|credential|connection_?string|(^|_)(pwd|dsn|auth|authorization|cookie)(_|$)"
    r"|(api|access|private|signing|encryption|master|account)_?key|_key$",
    re.IGNORECASE,
)
NAMES: Final = "secretNames"  # a field of answers; the names of secrets may be shown
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# `password=…`, `"token": "…"`, `API_KEY: …` in a line of text. The value ends at white space, a quote or a delimiter.
# All repetitions here and below are bounded, so that the time is linear in the length of any text.
_ASSIGNED = re.compile(
    r"""(?P<name>(?:passw(?:or)?d|passphrase|secret|token|(?:api|access|private)[_-]?key)["']?\s{0,3}[=:]\s{0,3}["']?)"""
    r"""(?P<value>[^\s"',;&|)}\]]{3,})""",
    re.IGNORECASE,
)
_SHAPES: Final = (
    # Passwords in URLs, such as the connection string of a database.
    (
        re.compile(r"(?P<keep>\b[a-z][a-z0-9+.-]{0,20}://[^\s:/@?#]{0,100}:)[^\s@/]{1,300}(?=@)", re.IGNORECASE),
        rf"\g<keep>{MASK}",
    ),
    (re.compile(r"(?P<keep>\b(?:Bearer|Basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE), rf"\g<keep>{MASK}"),
    # Tokens of this platform, of code hosts, payment and model providers, chats and clouds; JSON web tokens.
    (re.compile(r"\bpsk_(?:live|test)_\w+"), MASK),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|sk-|(?:sk|rk|whsec)_)[\w-]{10,}"), MASK),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), MASK),
    (re.compile(r"\beyJ[\w-]{8,500}\.[\w-]{1,4000}\.?[\w-]*"), MASK),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), MASK),
)


def is_secret_name(name: str) -> bool:
    """Report whether a variable, column or field of this name holds a credential."""
    return _NAME.search(_CAMEL.sub("_", name).replace("-", "_")) is not None


class Guard:
    """Masks credentials; `hidden` are values that are masked wherever they occur, such as the server's own token."""

    def __init__(self, hidden: Iterable[str] = ()) -> None:
        self._own = Masker([value for value in hidden if value])

    def message(self, text: str) -> str:
        """Mask credentials in a message of the platform, such as `password: must have 8 characters`."""
        text = self._own(text)
        for pattern, replacement in _SHAPES:
            text = pattern.sub(replacement, text)
        return text

    def text(self, text: str) -> str:
        """Mask credentials in the output of a program, also `password=…`."""
        return _ASSIGNED.sub(lambda match: f"{match['name']}{MASK}", self.message(text))

    def data(self, value: Any) -> Any:
        """Return a decoded JSON value with all credentials masked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.data(each) for each in value]
        if not isinstance(value, dict):
            return value
        if value.keys() == {"name", "value"} and is_secret_name(str(value["name"])):  # a variable or a header
            return {"name": value["name"], "value": MASK}
        return {key: self._field(str(key), each) for key, each in value.items()}

    def _field(self, name: str, value: Any) -> Any:
        is_credential = is_secret_name(name) and isinstance(value, str | list | dict) and len(value) > 0
        return MASK if is_credential and name != NAMES else self.data(value)
