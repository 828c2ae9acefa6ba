"""`moorage functions invoke` and `moorage functions logs`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from moorage.cli.output.tables import JsonOption, show_json
from moorage.cli.output.terminal import json_text, log_text, note, paint, plain, say, stop
from moorage.cli.output.words import parsed
from moorage.cli.session import connect
from moorage.cli.session.names import FunctionArgument
from moorage.client import Client
from moorage.client.models import FunctionInvocation, InvokeFunctionResult

RECORD_WAIT_S = 3.0  # The record of a call, with its logs, is stored shortly after its result is sent.
RECORD_POLL_S = 0.1
SHOWN_BY_DEFAULT = 20


def invoke(
    name: FunctionArgument,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", metavar="K=V", help="A param, as text; may be repeated.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", metavar="JSON|@FILE|-", help="All params, as JSON; - is standard input."),
    ] = None,
    shows_logs: Annotated[bool, typer.Option("--logs/--no-logs", help="Print the call's output on stderr.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Call a function and print its result.

    The result is on standard output; the output of the function and the duration are on standard error. The exit code
    is 1 if the function failed.

    Examples: `moorage functions invoke hello -p name=Ada`, `moorage functions invoke hello -d @params.json`.
    """
    payload = payload_of(param or [], data)
    client = connect.client()
    result = client.functions.invoke(name, body=payload)
    if shows_logs:
        _print_logs(_record_of(client, name, result.activation_id))
    show_result(result, as_json)


def show_result(result: InvokeFunctionResult, as_json: bool) -> None:
    """Print the result of a call; exit with 1 if the function failed."""
    note(f"version {result.version}, {result.duration_ms:.1f} ms, {plain(result.activation_id)}", "dim")
    if as_json:
        show_json(result)
    elif result.status != "error":
        sys.stdout.write(json_text(json.dumps(result.result, indent=2, ensure_ascii=False)) + "\n")
    if result.status == "error":
        stop(f"the function failed: {plain(result.error)}")


def payload_of(pairs: list[str], data: str | None) -> Any:
    """Return the payload of `-p` and `--data`, in the envelope that keeps a param of the name `params`."""
    payload: Any = {} if data is None else read_data(data)
    params = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            stop(f"-p {plain(pair)} should be NAME=value")
        params[key] = value
    if not params:
        return {"params": payload} if isinstance(payload, dict) else payload
    if not isinstance(payload, dict):
        stop("--data is not an object, so -p cannot add to it")
    return {"params": {**payload, **params}}


def read_data(data: str) -> Any:
    try:
        if data == "-":
            text = sys.stdin.read()
        elif data.startswith("@"):
            text = Path(data[1:]).read_text(encoding="utf-8")
        else:
            text = data
        return json.loads(text)
    except OSError as error:
        stop(f"cannot read {data[1:]}: {error.strerror}")
    except ValueError as error:
        stop(f"--data is not valid JSON: {error}")


def _record_of(client: Client, name: str, activation: str) -> FunctionInvocation | None:
    ends_at = time.monotonic() + RECORD_WAIT_S
    while time.monotonic() < ends_at:
        for each in client.functions.list_invocations(name, page_size=20).items:
            if each.activation_id == activation:
                return each
        time.sleep(RECORD_POLL_S)
    return None


def _print_logs(record: FunctionInvocation | None) -> None:
    if record is None:
        note("the output of the call is not stored yet; `moorage functions logs` shows it later", "dim")
        return
    for text in (record.stdout, record.stderr):
        for line in text.splitlines():
            note(log_text(line))


def logs(
    name: FunctionArgument,
    follows: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new calls; Ctrl-C ends.")] = False,
    tail: Annotated[int, typer.Option("--tail", "-n", min=0, max=100, help="Number of past calls.")] = SHOWN_BY_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show the calls of a function with their output, oldest first.

    With --json each line is one call, or one event with --follow.

    Examples: `moorage functions logs hello`, `moorage functions logs -f hello`.
    """
    client = connect.client()
    if follows:
        for event in client.functions.follow_logs(name, tail=tail):
            if as_json:
                typer.echo(json_text(json.dumps({"event": event.name, "data": event.data}, ensure_ascii=False)))
            elif event.name == "log":
                _show_line(event.data["stream"], event.data["message"])
            elif event.name == "invocation":
                _show_call(event.data["timestamp"], event.data)
        return
    invocations = client.functions.list_invocations(name, page_size=max(tail, 1)).items[:tail]
    if as_json:
        show_json(invocations)
        return
    for each in reversed(invocations):
        for stream, text in (("stdout", each.stdout), ("stderr", each.stderr)):
            for line in text.splitlines():
                _show_line(stream, line)
        _show_call(
            each.timestamp,
            {
                "status": each.status,
                "door": each.door,
                "version": each.version,
                "duration": each.duration,
                "error": each.error,
                "coldStart": each.cold_start,
            },
        )


def _show_line(stream: str, text: str) -> None:
    line = log_text(text)
    say(f"  {line}" if stream == "stdout" else f"  {paint(line, 'yellow')}")


def _show_call(timestamp: str, call: dict[str, Any]) -> None:
    moment = parsed(timestamp)
    is_good = call["status"] == "success"
    words = [
        paint(moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else plain(timestamp), "dim"),
        paint(plain(call["status"]), "green" if is_good else "red"),
        f"{plain(call['door'])} v{call['version']} {call['duration']:.1f} ms",
        "(cold start)" if call.get("coldStart") else "",
        paint(plain(call["error"]), "red") if call.get("error") else "",
    ]
    say(" ".join(word for word in words if word))
