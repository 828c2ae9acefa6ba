"""Multipart uploads: streamed to disk, limited by received bytes, and deleted afterwards."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.client import Client, Reply
from tests.core.http.lab import ADA, lab_app, one_store
from tests.core.http.live_server import in_chunks, live_server, request

from moorage.core.db.store import Database
from moorage.core.http.forms import MAX_FIELD_BYTES, MAX_PARTS, Form
from moorage.core.http.models import Input
from moorage.core.http.route import MB, Router, Upload
from moorage.errors import Conflict

pytestmark = [pytest.mark.anyio, one_store]

EDGE = "----edge7"
KIND = f"multipart/form-data; boundary={EDGE}"
LIMIT = 2 * MB
GONE = b"the client went away"


class CodeFields(Input):
    name: str = ""


@dataclass
class Quay:
    """An application with uploads, and the folder of their temporary files."""

    asgi: Any
    folder: Path
    forms: list[Form] = field(default_factory=list)
    seen: list[bytes] = field(default_factory=list)

    @property
    def left_behind(self) -> list[Path]:
        return list(self.folder.iterdir()) if self.folder.exists() else []

    async def send(self, *parts: bytes, kind: str = KIND, **headers: str) -> Reply:
        content = b"".join(parts)
        sent = {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return await Client(self.asgi, token=ADA).post("/v1/code", content=content, headers=sent)

    async def stream(self, chunks: Iterable[bytes], *, on_chunk: Callable[[], None] = lambda: None) -> Any:
        """Send a body without a length, piece by piece; return the answer, or None without one."""
        waiting, sent = iter(chunks), list[dict[str, Any]]()

        async def receive() -> dict[str, Any]:
            on_chunk()
            chunk = next(waiting, None)
            if chunk == GONE:
                return {"type": "http.disconnect"}
            if chunk is None:
                return {"type": "http.request", "body": b"", "more_body": False}
            return {"type": "http.request", "body": chunk, "more_body": True}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        headers = {"authorization": f"Bearer {ADA}", "content-type": KIND, "transfer-encoding": "chunked"}
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/code",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        await self.asgi(scope, receive, send)
        return (
            Reply(sent[0]["status"], {}, b"".join(message.get("body", b"") for message in sent[1:])) if sent else None
        )


@pytest.fixture
def quay(db: Database) -> Quay:
    router = Router("Lab")
    quay = Quay(lab_app(db, router), db.env.settings.folder("uploads"))

    @router.post("/code", upload=Upload(("code", "extra"), LIMIT, CodeFields))
    async def take(form: Form) -> dict[str, Any]:
        quay.forms.append(form)
        quay.seen += [file.path.read_bytes() for file in form.files.values()]
        if form.fields.get("name") == "taken":
            raise Conflict("It is taken")
        if form.fields.get("name") == "crash":
            raise RuntimeError("down it goes")
        if form.fields.get("name") == "moved":
            os.replace(form.files["code"].path, quay.folder.parent / "kept")
        return {
            "fields": form.fields,
            "files": {name: [file.filename, file.size, file.sha256] for name, file in form.files.items()},
        }

    quay.asgi = lab_app(db, router)
    return quay


def part(name: str, content: bytes, filename: str | None = None) -> bytes:
    also = f'; filename="{filename}"' if filename is not None else ""
    head = f'--{EDGE}\r\nContent-Disposition: form-data; name="{name}"{also}\r\n\r\n'
    return head.encode() + content + b"\r\n"


END = f"--{EDGE}--\r\n".encode()


def check_refused(reply: Reply, message: str) -> None:
    assert reply.status == 400, reply.body
    assert reply.error["code"] == "bad_request"
    assert message in reply.error["message"]


async def test_files_and_fields_arrive_whole_with_their_hash(quay: Quay) -> None:
    content = os.urandom(300_000) + f"\r\n--{EDGE[:-1]}".encode() + b"\r\n\r\n--"

    reply = await quay.send(part("code", content, "app.zip"), part("name", "harbor é".encode()), END)

    digest = hashlib.sha256(content).hexdigest()
    assert reply.data == {"fields": {"name": "harbor é"}, "files": {"code": ["app.zip", len(content), digest]}}
    assert quay.seen == [content]


async def test_a_file_goes_to_disk_while_it_still_comes(quay: Quay) -> None:
    sizes: list[int] = []
    chunks = [part("code", b"", "a.zip")[:-2], *([b"x" * 65536] * 16), b"\r\n", END]

    reply = await quay.stream(
        chunks, on_chunk=lambda: sizes.append(sum(path.stat().st_size for path in quay.left_behind))
    )

    assert reply.status == 200
    assert reply.data["files"]["code"][1] == 16 * 65536
    assert 0 < sizes[8] < sizes[14]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_a_body_may_come_in_pieces_of_any_size(quay: Quay, size: int) -> None:
    body = part("code", b"\r\n--" + EDGE.encode()[:5] + b"\r", "a.zip") + part("name", b"x") + END

    reply = await quay.stream(body[at : at + size] for at in range(0, len(body), size))

    assert reply.data["fields"] == {"name": "x"}
    assert quay.seen == [b"\r\n--" + EDGE.encode()[:5] + b"\r"]


async def test_two_files_and_an_empty_one_are_three_things(quay: Quay) -> None:
    reply = await quay.send(part("code", b"one", "a"), part("extra", b"", ""), END)

    assert reply.data["files"]["code"][:2] == ["a", 3]
    assert reply.data["files"]["extra"] == ["", 0, hashlib.sha256(b"").hexdigest()]


@pytest.mark.parametrize("name", ["harbor", "taken", "crash"])
async def test_no_file_outlives_its_request_however_it_ends(quay: Quay, name: str) -> None:
    await quay.send(part("code", b"x" * 1000, "a.zip"), part("name", name.encode()), END)

    assert len(quay.forms) == 1
    assert quay.left_behind == []


async def test_a_file_that_the_handler_moved_away_stays_where_it_is(quay: Quay) -> None:
    await quay.send(part("code", b"cargo", "a.zip"), part("name", b"moved"), END)

    assert (quay.folder.parent / "kept").read_bytes() == b"cargo"
    assert quay.left_behind == []


async def test_only_the_owner_may_read_what_lies_there_meanwhile(quay: Quay) -> None:
    modes: list[int] = []

    await quay.stream(
        [part("code", b"x" * 100_000, "a"), END],
        on_chunk=lambda: modes.extend(path.stat().st_mode & 0o777 for path in quay.left_behind),
    )

    assert set(modes) == {0o600}
    assert quay.folder.stat().st_mode & 0o777 == 0o700


async def test_a_file_at_the_limit_is_taken_and_one_byte_more_is_refused_by_name(quay: Quay) -> None:
    fits = await quay.send(part("code", b"x" * LIMIT, "a"), END)
    over = await quay.send(part("code", b"x" * (LIMIT + 1), "a"), END)

    assert fits.status == 200
    assert over.status == 400
    assert over.error["fields"] == {"code": "is larger than 2 MB"}
    assert quay.left_behind == []


async def test_a_file_over_the_limit_is_refused_by_its_name_and_the_first_one(quay: Quay) -> None:
    over = await quay.send(part("extra", b"x" * (LIMIT + 1), "a"), END)

    assert over.error["fields"] == dict.fromkeys(("code", "extra"), "is larger than 2 MB")


async def test_a_body_announced_too_large_is_refused_before_any_of_it_is_read(quay: Quay) -> None:
    reply = await quay.send(content_length=str(LIMIT + MAX_FIELD_BYTES + 1))

    assert reply.status == 400
    assert reply.error["fields"] == dict.fromkeys(("code", "extra"), "is larger than 2 MB")
    assert not quay.folder.exists() or quay.left_behind == []


async def test_a_body_that_grows_too_large_is_refused_whatever_was_announced(quay: Quay) -> None:
    reply = await quay.stream([part("unknown", b"", "big")[:-2], *[b"x" * 65536] * 100])

    assert reply.status == 400
    assert reply.error["fields"] == dict.fromkeys(("code", "extra"), "is larger than 2 MB")
    assert quay.forms == []
    assert quay.left_behind == []


async def test_a_field_that_is_too_long_is_refused_by_name(quay: Quay) -> None:
    reply = await quay.send(part("name", b"x" * (MAX_FIELD_BYTES + 1)), END)

    assert reply.error["fields"] == {"name": "is too long"}


@pytest.mark.parametrize(
    ("content", "problem"), [(b"\xff", "is not UTF-8"), (b"a\x00b", "must not contain a NUL character")]
)
async def test_a_field_that_cannot_be_stored_is_refused_by_name(quay: Quay, content: bytes, problem: str) -> None:
    reply = await quay.send(part("name", content), END)

    assert reply.error["fields"] == {"name": problem}


async def test_a_file_that_nobody_asked_for_is_ignored(quay: Quay) -> None:
    reply = await quay.send(part("photo", b"\xff\xd8" * MAX_FIELD_BYTES, "me.jpg"), part("name", b"x"), END)

    assert reply.data == {"fields": {"name": "x"}, "files": {}}
    assert quay.left_behind == []


async def test_a_text_that_comes_as_a_file_is_a_text(quay: Quay) -> None:
    reply = await quay.send(part("name", b"blue", "blob"), END)

    assert reply.data == {"fields": {"name": "blue"}, "files": {}}
    assert quay.left_behind == []


async def test_a_file_field_that_comes_as_text_is_a_text(quay: Quay) -> None:
    reply = await quay.send(part("code", b"exports.main"), END)

    assert reply.data == {"fields": {"code": "exports.main"}, "files": {}}


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "application/json",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=" + "x" * 300,
        "multipart/mixed; boundary=" + EDGE,
        "\xff; boundary=\xff",
        "multipart/form-data; boundary=other",
    ],
)
async def test_a_body_of_another_kind_or_without_its_boundary_is_refused(quay: Quay, kind: str) -> None:
    reply = await quay.send(part("name", b"x"), END, kind=kind)

    check_refused(reply, "multipart/form-data")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nothing of the kind",
        part("code", b"x", "a"),
        part("code", b"x", "a")[:-1],
        part("code", b"x" * 5000, "a")[:3000],
        part("code", b"x", "a") + END[:-4],
        part("code", b"x", "a") + f"--{EDGE}".encode(),
        f"--{EDGE}\r\nContent-Disposition: form-data".encode(),
        f"--{EDGE}\nContent-Disposition: form-data; name=a\n\nx\n--{EDGE}--\n".encode(),
        f"--{EDGE}\r\nno header here\r\n\r\nx\r\n".encode() + END,
        f"--{EDGE}\r\n: empty\r\n\r\nx\r\n".encode() + END,
        f"--{EDGE}\r\nA: b\r\rx\r\n".encode() + END,
        f"--{EDGE}\r\nContent-Disposition: form-data; name=a; x={'y' * 20_000}\r\n\r\nx\r\n".encode() + END,
        f"--{EDGE}\r\n{'x' * 20_000}: y\r\n\r\nx\r\n".encode() + END,
        f"--{EDGE}\r\n{'A: b' * 50}\r\n\r\nx\r\n".encode().replace(b"bA", b"b\r\nA") + END,
    ],
)
async def test_a_form_that_is_broken_is_refused_and_leaves_nothing(quay: Quay, body: bytes) -> None:
    reply = await quay.send(body)

    check_refused(reply, "not valid multipart/form-data")
    assert quay.forms == []
    assert quay.left_behind == []


@pytest.mark.parametrize(
    "body",
    [
        part("unknown", b"x") + part("unknown", b"y"),
        part("", b"x"),
        f"--{EDGE}\r\nContent-Type: text/plain\r\n\r\nx\r\n".encode(),
        f"--{EDGE}\r\nContent-Disposition: form-data\r\n\r\nx\r\n".encode(),
    ],
)
async def test_a_part_without_a_name_or_with_one_twice_is_refused(quay: Quay, body: bytes) -> None:
    reply = await quay.send(body, END)

    check_refused(reply, "without a name, or a name twice")
    assert quay.left_behind == []


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("code", part("code", b"x", "a") + part("code", b"y", "b")),
        ("code", part("code", b"x", "a") + part("code", b"y")),
        ("name", part("name", b"x") + part("name", b"y")),
        ("name", part("name", b"x") + part("name", b"y", "b")),
    ],
)
async def test_a_known_name_twice_is_refused_by_name(quay: Quay, name: str, body: bytes) -> None:
    reply = await quay.send(body, END)

    assert (reply.status, reply.error["fields"]) == (400, {name: "is there twice"})
    assert quay.left_behind == []


async def test_a_form_of_too_many_parts_is_refused(quay: Quay) -> None:
    fits = await quay.send(*(part(f"f{number}", b"") for number in range(MAX_PARTS)), END)
    over = await quay.send(*(part(f"f{number}", b"") for number in range(MAX_PARTS + 1)), END)

    assert fits.status == 200
    check_refused(over, "more than 64 parts")


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "C:\\x", "a\x00b", "ü", "\u202egpj", "x" * 3000])
async def test_a_file_name_chooses_no_place_on_disk(quay: Quay, name: str) -> None:
    reply = await quay.send(part("code", b"x", name), END)

    assert reply.status == 200
    assert [form.files["code"].path.parent for form in quay.forms] == [quay.folder]


async def test_a_client_that_goes_away_in_the_middle_leaves_nothing_and_gets_no_answer(quay: Quay) -> None:
    begun: list[int] = []

    reply = await quay.stream(
        [part("code", b"x" * 100_000, "a"), GONE], on_chunk=lambda: begun.append(len(quay.left_behind))
    )

    assert begun == [0, 1]
    assert reply is None
    assert quay.left_behind == []


async def test_the_same_upload_under_a_key_takes_effect_once_whatever_its_boundary(quay: Quay) -> None:
    body = part("code", b"cargo", "a.zip") + part("name", b"x") + END
    other_edge = body.replace(EDGE.encode(), b"another")

    first = await quay.send(body, Idempotency_Key="up-1")
    again = await quay.send(other_edge, kind="multipart/form-data; boundary=another", Idempotency_Key="up-1")
    changed = await quay.send(body.replace(b"cargo", b"CARGO"), Idempotency_Key="up-1")

    assert (first.status, again.body, changed.status) == (200, first.body, 409)
    assert len(quay.forms) == 1
    assert quay.left_behind == []


async def test_forms_that_only_look_alike_are_told_apart(quay: Quay) -> None:
    await quay.send(part("a", b"b=c"), END, Idempotency_Key="up-1")

    other = await quay.send(part("a=b", b"c"), END, Idempotency_Key="up-1")

    assert other.status == 409


async def test_nobody_without_a_credential_gets_a_byte_onto_the_disk(quay: Quay) -> None:
    reply = await quay.send(part("code", b"x" * 1000, "a"), END, authorization="Bearer nobody")

    assert reply.status == 401
    assert not quay.folder.exists()


async def test_over_a_socket_a_chunked_upload_is_taken_and_one_too_large_is_refused_with_an_answer(quay: Quay) -> None:
    headers = {"Authorization": f"Bearer {ADA}", "Content_Type": KIND, "Transfer_Encoding": "chunked"}
    small = in_chunks(part("code", b"x" * 100_000, "a"), END)
    large = in_chunks(part("code", b"x" * 100_000, "a")[:-2], *[b"x" * MB] * 40)

    with live_server(quay.asgi) as server:
        accepted = server.ask(request("POST", "/v1/code", small, **headers))
        with server.dial() as wire:
            wire.send_while_it_can(request("POST", "/v1/code", large, **headers))
            refused = wire.reply()

    assert accepted.data["files"]["code"][1] == 100_000
    assert refused.status == 400
    assert refused.headers["connection"] == "close"
    assert quay.left_behind == []


async def test_a_refused_form_that_came_whole_costs_the_client_neither_time_nor_its_connection(quay: Quay) -> None:
    broken = request("POST", "/v1/code", b"broken", Authorization=f"Bearer {ADA}", Content_Type=KIND)

    with live_server(quay.asgi) as server, server.dial() as wire:
        wire.send(broken)
        first = wire.reply()
        wire.send(broken)
        second = wire.reply()

    assert (first.status, second.status) == (400, 400)
    assert "connection" not in first.headers
