"""Logs and spans of one platform run, shared because a start costs more than the tests."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.platform.running import Running, running

Spans = dict[str, dict[str, str]]
NAME_IN_THE_BODY = "hunter2-in-the-body"
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "100"}  # milliseconds; by default spans are exported after seconds
WANTED = {"POST /v1/orgs", "job identity.welcome_organization"}


@dataclass(frozen=True)
class Told:
    """The log of a stopped platform, its spans by name, and texts that must not be in the log."""

    log: str
    spans: Spans
    secrets: tuple[str, ...]

    def lines(self, trace: str) -> list[dict[str, Any]]:
        """Return the log lines of one request."""
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("trace") == trace]


@contextmanager
def collecting(spans: Spans) -> Iterator[str]:
    """Receive spans as a collector; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    spans[span.name] = {each.key: each.value.string_value for each in span.attributes}
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Send a few requests to a platform and stop it."""
    folder, spans = tmp_path_factory.mktemp("telemetry"), Spans()
    log = folder / "data.log"
    with (
        collecting(spans) as url,
        running(folder / "data", "--log-format", "json", "--otlp-endpoint", url, env=SOON) as platform,
    ):
        secrets = ask_with_secrets(platform)
        sent = {"Authorization": f"Bearer {platform.session()}", "x-request-id": "made-an-org"}
        platform.call("POST", "/v1/orgs", headers=sent, json_body={"name": "Harbor"})
        platform.wait_until(lambda: spans.keys() >= WANTED)
        platform.wait_until(lambda: any('"event":"job"' in line for line in log.open() if "made-an-org" in line))
        platform.stop()
    return Told(log.read_text(), spans, secrets)


def ask_with_secrets(platform: Running) -> tuple[str, ...]:
    token = platform.session()
    headers = {"Authorization": f"Bearer {token}", "x-request-id": "trace-of-mine"}
    response = platform.call("POST", "/v1/api-tokens", headers=headers, json_body={"name": NAME_IN_THE_BODY})
    raw = response[1]["data"]["token"]
    platform.call("GET", f"/v1/me?access_token={raw}", headers=headers)
    return token, raw, token.split(".")[2], NAME_IN_THE_BODY
