"""Spans: sent to a real collector's address when one is configured, and costing nothing otherwise."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.platform.running import running


class Collector:
    def __init__(self) -> None:
        self.spans: dict[str, dict[str, str]] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                import gzip

                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans[span.name] = {a.key: a.value.string_value for a in span.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever, daemon=True)
    thread.start()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


def test_requests_and_jobs_become_spans_with_the_trace_id_of_the_answer(tmp_path: Path, collector: Collector) -> None:
    with running(tmp_path / "data", "--otlp-endpoint", collector.url) as platform:
        headers = {"Authorization": f"Bearer {platform.token()}", "x-request-id": "span-of-mine"}
        platform.call("POST", "/v1/orgs", headers=headers, json_body={"name": "Harbor"})
        wanted = {"POST /v1/orgs", "job identity.welcome_organization"}
        platform.wait_until(lambda: wanted <= collector.spans.keys())

    assert collector.spans["POST /v1/orgs"]["moorage.trace_id"] == "span-of-mine"


def test_without_a_collector_the_libraries_are_not_even_imported() -> None:
    program = "import sys, moorage.platform.control; print('opentelemetry.sdk' in sys.modules)"

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ended.stdout.strip() == "False"
