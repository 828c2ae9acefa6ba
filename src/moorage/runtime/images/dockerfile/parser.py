"""Parses a Dockerfile into instructions; every error names its line."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from moorage.runtime.images.dockerfile import flags, lines, words
from moorage.runtime.images.dockerfile import instructions as ins
from moorage.runtime.images.dockerfile.errors import DockerfileError
from moorage.runtime.images.dockerfile.flags import Flags
from moorage.runtime.images.dockerfile.lines import Line

MAX_TEXT = 2_000  # of an instruction in the log and in the history
_NAME = re.compile(r"[a-z][a-z0-9._-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_DURATION_CHARS = 40
_DURATION = re.compile(r"(\d{1,40}(?:\.\d{1,40})?)(ns|us|µs|ms|s|m|h)")
_UNITS_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_HEALTH_FLAGS = {
    "interval": "Interval", "timeout": "Timeout", "start-period": "StartPeriod", "start-interval": "StartInterval",
}  # fmt: skip
_NOT_ONBUILD = ("ONBUILD", "FROM", "MAINTAINER")


def parse(text: str) -> tuple[list[ins.Instruction], str]:
    """Return the instructions and the escape character; raises DockerfileError."""
    document = lines.split(text)
    return [parse_line(line, document.escape) for line in document.lines], document.escape


def parse_trigger(trigger: str, line: int, escape: str = "\\") -> ins.Instruction:
    """Parse an ONBUILD trigger of a base image, which runs at the line of FROM."""
    try:
        document = lines.split(trigger)
        if len(document.lines) != 1:
            raise DockerfileError(line, "it should be one instruction")
        return parse_line(replace(document.lines[0], number=line), escape)
    except DockerfileError as error:
        raise DockerfileError(line, f"the base image's ONBUILD {trigger[:80]!r}: {error.why}") from None


def parse_line(line: Line, escape: str) -> ins.Instruction:
    parse_one = _PARSERS.get(line.keyword)
    if parse_one is None:
        close = difflib.get_close_matches(line.keyword, _PARSERS, 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise DockerfileError(line.number, f"unknown instruction {line.keyword[:40]}{hint}")
    try:
        return parse_one(_Source(line, escape))
    except (words.BadWord, ValueError) as error:
        raise DockerfileError(line.number, f"{line.keyword}: {error}") from None


class _Source:
    """One line, with its number and flags for the parsers of instructions."""

    def __init__(self, line: Line, escape: str) -> None:
        self.line = line
        self.escape = escape
        options, self.rest = flags.take(line.rest, escape)
        self.flags = Flags(line.keyword, options)
        text = f"{line.keyword} {line.rest}"
        self.place = (line.number, text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…")

    def words(self) -> list[str]:
        return words.split_raw(self.rest, self.escape)

    def need_rest(self, what: str) -> str:
        if not self.rest.strip():
            raise ValueError(f"needs {what}")
        return self.rest.strip()

    def no_flags(self) -> None:
        self.flags.known({})

    def command(self) -> ins.Command:
        argv = _json_words(self.rest)
        return ins.Command(argv, is_shell=False) if argv is not None else ins.Command((self.rest,), is_shell=True)


def _json_words(text: str) -> tuple[str, ...] | None:
    """Return the words of the JSON form; None if the text is not a JSON array."""
    if not text.lstrip().startswith("["):
        return None
    try:
        array = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(array, list):
        return None
    if not all(isinstance(word, str) for word in array):
        raise ValueError("the words of the JSON form should be strings")
    return tuple(array)


def _from(source: _Source) -> ins.From:
    source.flags.known({"platform": flags.TEXT})
    parts = source.need_rest("an image").split()
    if len(parts) not in (1, 3) or (len(parts) == 3 and parts[1].upper() != "AS"):
        raise ValueError("should be `FROM image` or `FROM image AS name`")
    name = parts[2].lower() if len(parts) == 3 else ""
    if name and not _NAME.fullmatch(name):
        raise ValueError(f"the stage name {name!r} should start with a letter, and have letters, digits, - _ . only")
    return ins.From(*source.place, parts[0], source.flags.text("platform"), name)


def _pairs(source: _Source, what: str) -> tuple[tuple[str, str], ...]:
    """Parse `name=value …`, or the old form `name value` with one pair."""
    source.no_flags()
    rest = source.need_rest(what)
    raw = words.split_raw(rest, source.escape)
    if "=" not in raw[0]:
        if len(raw) < 2:
            raise ValueError(f"{raw[0]!r} has no value: write {raw[0]}=value")
        return ((raw[0], rest[len(raw[0]) :].strip()),)
    pairs = []
    for word in raw:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} should be {word}=value")
        if not name:
            raise ValueError(f"{word!r} has no name before the =")
        pairs.append((name, value))
    return tuple(pairs)


def _env(source: _Source) -> ins.Env:
    return ins.Env(*source.place, _pairs(source, "a name and a value"))


def _label(source: _Source) -> ins.Label:
    return ins.Label(*source.place, _pairs(source, "a name and a value"))


def _arg(source: _Source) -> ins.Arg:
    source.no_flags()
    source.need_rest("a name")
    pairs: list[tuple[str, str | None]] = []
    for word in source.words():
        name, equals, value = word.partition("=")
        name = words.unquote(name, source.escape)
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a variable")
        pairs.append((name, value if equals else None))
    return ins.Arg(*source.place, tuple(pairs))


def _run(source: _Source) -> ins.Run:
    source.flags.known({"mount": flags.TEXTS, "network": flags.TEXT, "security": flags.TEXT})
    source.need_rest("a command")
    network = source.flags.text("network") or "default"
    if network not in ("default", "none"):
        raise ValueError(f"--network={network} is not supported: builds have the network of a sandbox, or none")
    if source.flags.text("security") not in ("", "sandbox"):
        raise ValueError("--security=insecure is not supported: builds never run with privileges of the machine")
    mounts = tuple(flags.parse_mount(each) for each in source.flags.texts("mount"))
    for mount in mounts:
        _no_variable(mount.options.get("from", ""))
    command = source.command()
    if not command.words:
        raise ValueError("the JSON form has no words")
    return ins.Run(*source.place, command, mounts, network != "none", source.line.heredocs)


def _copy(source: _Source) -> ins.Copy:
    is_add = source.line.keyword == "ADD"
    source.flags.known(flags.ADD if is_add else flags.COPY)
    json_form = _json_words(source.rest)
    parts = list(json_form) if json_form is not None else source.words()
    if len(parts) < 2:
        raise ValueError("needs at least one source and a target")
    inline: dict[str, lines.Heredoc] = {}
    if json_form is None:
        opened = [word for word in parts[:-1] if lines.parse_heredoc(word)]
        inline = dict(zip(opened, source.line.heredocs, strict=True))
    if is_add and source.flags.switch("keep-git-dir"):
        raise ValueError("--keep-git-dir is not supported: ADD does not clone Git repositories")
    from_ = _no_variable(source.flags.text("from"))
    if from_ and inline:
        raise ValueError("--from cannot be used with a heredoc")
    unpacks = source.flags.switch("unpack") if "unpack" in source.flags.found_names else None
    return ins.Copy(
        *source.place,
        tuple(parts[:-1]) if json_form is None else tuple(_quoted(part, source.escape) for part in parts[:-1]),
        parts[-1] if json_form is None else _quoted(parts[-1], source.escape),
        is_add=is_add,
        from_=from_,
        chown=source.flags.text("chown"),
        chmod=source.flags.text("chmod"),
        checksum=source.flags.text("checksum"),
        exclude=tuple(source.flags.texts("exclude")),
        is_link=source.flags.switch("link"),
        keeps_parents=source.flags.switch("parents"),
        unpacks=unpacks,
        inline=inline,
    )


def _no_variable(name: str) -> str:
    if "$" in name:
        raise ValueError(
            f"from={name} cannot have a variable: name a stage with `FROM ${{…}} AS name`, and use that name"
        )
    return name


def _quoted(word: str, escape: str) -> str:
    """Quote a word of the JSON form, in which variables are still replaced."""
    return '"' + word.replace(escape, escape * 2).replace('"', f'{escape}"') + '"'


def _one(make: Callable[..., ins.Instruction], what: str) -> Callable[[_Source], ins.Instruction]:
    def parse_one(source: _Source) -> ins.Instruction:
        source.no_flags()
        return make(*source.place, source.need_rest(what))

    return parse_one


def _expose(source: _Source) -> ins.Expose:
    source.no_flags()
    source.need_rest("a port")
    return ins.Expose(*source.place, tuple(source.words()))


def _volume(source: _Source) -> ins.Volume:
    source.no_flags()
    source.need_rest("a path")
    paths = _json_words(source.rest)
    if paths is not None:
        return ins.Volume(*source.place, tuple(_quoted(each, source.escape) for each in paths))
    return ins.Volume(*source.place, tuple(source.words()))


def _shell(source: _Source) -> ins.Shell:
    source.no_flags()
    argv = _json_words(source.need_rest("a shell"))
    if not argv:
        raise ValueError('needs the JSON form, such as ["/bin/bash", "-c"]')
    return ins.Shell(*source.place, argv)


def _onbuild(source: _Source) -> ins.OnBuild:
    rest = source.line.rest.strip()
    keyword = (rest.split(None, 1) or [""])[0].upper()
    if not keyword:
        raise ValueError("needs an instruction")
    if keyword in _NOT_ONBUILD:
        raise ValueError(f"{keyword} cannot be a trigger")
    if source.line.heredocs:
        raise ValueError("heredocs are not supported in triggers")
    inner = Line(source.line.number, keyword, rest[len(keyword) :].strip())
    parse_line(inner, source.escape)  # An invalid trigger is reported here, and not in the image that uses it.
    return ins.OnBuild(*source.place, rest)


def _healthcheck(source: _Source) -> ins.Healthcheck:
    rest = source.need_rest("CMD and a command, or NONE")
    keyword, _, command = rest.partition(" ")
    source.flags.known({**dict.fromkeys(_HEALTH_FLAGS, flags.TEXT), "retries": flags.TEXT})
    if keyword.upper() == "NONE":
        if command.strip():
            raise ValueError("NONE takes no arguments")
        return ins.Healthcheck(*source.place, None, {})
    if keyword.upper() != "CMD" or not command.strip():
        raise ValueError("should be `HEALTHCHECK CMD command` or `HEALTHCHECK NONE`")
    source.rest = command.strip()
    intervals = {key: _duration(name, text) for name, key in _HEALTH_FLAGS.items() if (text := source.flags.text(name))}
    retries = source.flags.text("retries") or "0"
    if not re.fullmatch("[0-9]{1,6}", retries):
        raise ValueError(f"--retries={retries} should be a whole number")
    return ins.Healthcheck(*source.place, source.command(), intervals, int(retries))


def _duration(name: str, text: str) -> int:
    if text == "0":
        return 0
    if len(text) > MAX_DURATION_CHARS or not re.fullmatch(rf"(?:{_DURATION.pattern})+", text):
        raise ValueError(f"--{name}={text} should be a duration such as 30s or 1m30s")
    duration_ns = round(sum(float(number) * _UNITS_NS[unit] for number, unit in _DURATION.findall(text)))
    if duration_ns and duration_ns < 10**6:
        raise ValueError(f"--{name}={text} should be at least 1ms")
    return duration_ns


def _cmd(source: _Source) -> ins.Cmd:
    source.no_flags()
    return ins.Cmd(*source.place, source.command())


def _entrypoint(source: _Source) -> ins.Entrypoint:
    source.no_flags()
    source.need_rest("a command")
    return ins.Entrypoint(*source.place, source.command())


_PARSERS: Mapping[str, Callable[[_Source], ins.Instruction]] = {
    "FROM": _from,
    "ARG": _arg,
    "ENV": _env,
    "LABEL": _label,
    "RUN": _run,
    "COPY": _copy,
    "ADD": _copy,
    "WORKDIR": _one(ins.Workdir, "a path"),
    "USER": _one(ins.User, "a user"),
    "EXPOSE": _expose,
    "VOLUME": _volume,
    "STOPSIGNAL": _one(ins.StopSignal, "a signal"),
    "SHELL": _shell,
    "ONBUILD": _onbuild,
    "HEALTHCHECK": _healthcheck,
    "CMD": _cmd,
    "ENTRYPOINT": _entrypoint,
    "MAINTAINER": _one(ins.Maintainer, "a name"),
}
