"""OpenTelemetry spans; imports the libraries only with a collector."""

from __future__ import annotations

from typing import Any

from moorage.errors import CannotStart


class TracingUnavailable(CannotStart):
    """A collector is configured, but the OpenTelemetry libraries are not installed."""


def make_tracer(endpoint: str, *, exporter: Any = None) -> Any:
    """Return a tracer for an OTLP endpoint over HTTP, or None without one."""
    if not endpoint and exporter is None:
        return None
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise TracingUnavailable("MOORAGE_OTLP_ENDPOINT: needs the extra: pip install 'moorage[otel]'") from None
    if exporter is None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + "/v1/traces")
    provider = TracerProvider(resource=Resource.create({"service.name": "moorage"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider.get_tracer("moorage")
