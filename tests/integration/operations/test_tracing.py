"""Traces: what the client does and what the server does for it are one trace, across processes.

Method: a server in a process of its own, which sends its spans to a receiver in this one, over OTLP; the client's spans
stay in memory. Both are compared.
"""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from opentelemetry.trace import Tracer

import tidelog
from tidelog import tracing
from tidelog_server.config import ConfigError, load_config
from tidelog_testing.documents.examples import output_of_example
from tidelog_testing.servers.processes import ROOT, ServerProcess


class Receiver:
    """Takes spans by OTLP over HTTP; ``spans`` has those that came."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = ExportTraceServiceRequest.FromString(body)
                receiver.spans += [
                    span for group in request.resource_spans for scope in group.scope_spans for span in scope.spans
                ]
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def named(self, method: str) -> list[Any]:
        return [span for span in self.spans if span.name.endswith(method)]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def server(receiver: Receiver, tmp_path: Path) -> Iterator[ServerProcess]:
    settings = {"tracing.endpoint": receiver.endpoint, "tracing.sample_ratio": 0}
    with ServerProcess(tmp_path / "data", settings) as server:
        yield server


class Recorded:
    """Spans of the client."""

    def __init__(self, sampler: Sampler) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self.provider.get_tracer("test")

    def one(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return span

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    recorded = Recorded(ALWAYS_ON)
    tracing.enable(recorded.provider)
    yield recorded
    tracing.disable()


def stopped(server: ServerProcess) -> None:
    """End the server gracefully: it sends all its spans first."""
    server.terminate()
    assert server.wait() == 0


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ids_of(span: ReadableSpan) -> tuple[bytes, bytes]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")


def test_a_call_is_one_trace_on_both_sides(server: ServerProcess, receiver: Receiver, recorded: Recorded) -> None:
    with tidelog.Client(server.grpc) as client, recorded.tracer.start_as_current_span("mine"):
        client.create_channel("orders")
    stopped(server)
    (served,) = receiver.named("ChannelService/CreateChannels")
    assert (served.trace_id, served.parent_span_id) == ids_of(recorded.one("mine"))
    told = {each.key: each.value for each in served.attributes}
    assert told["rpc.method"].string_value == "CreateChannels"
    assert told["rpc.grpc.status_code"].int_value == 0


def test_appends_and_scans_have_spans_and_their_batches_on_the_server_too(
    server: ServerProcess, receiver: Receiver, recorded: Recorded
) -> None:
    with tidelog.Client(server.grpc) as client:
        client.create_channel("orders", vchannels=2)
        result = client.vchannel("orders/1").append([b"one", b"two"])
        with recorded.tracer.start_as_current_span("mine"):
            assert sum(len(batch) for batch in client.vchannel("orders/1").scan()) == 2
    stopped(server)
    append = attributes_of(recorded.one("append orders"))
    assert append["messaging.system"] == "tidelog"
    assert append["messaging.destination.name"] == "orders"
    assert append["messaging.destination.partition.id"] == "1"
    assert append["messaging.batch.message_count"] == 2
    assert append["tidelog.first_tick"] == result.first_tick
    scan = recorded.one("scan orders")
    assert attributes_of(scan)["messaging.batch.message_count"] == 2
    (served,) = receiver.named("WalService/Scan")
    assert (served.trace_id, served.parent_span_id) == ids_of(scan)
    pages = [span for span in receiver.named("page") if span.parent_span_id == served.span_id]
    assert pages
    (stream,) = receiver.named("WalService/AppendStream")
    batches = [span for span in receiver.named("batch") if span.parent_span_id == stream.span_id]
    assert len(batches) == 1
    assert batches[0].end_time_unix_nano > batches[0].start_time_unix_nano


def test_transactions_and_broadcasts_have_spans(server: ServerProcess, receiver: Receiver, recorded: Recorded) -> None:
    with tidelog.Client(server.grpc) as client:
        for name in ("orders", "payments"):
            client.create_channel(name)
        with client.txn() as txn:
            txn.append("orders", [b"one", b"two"])
            txn.append("payments", b"three")
        sent = client.broadcast(["orders/0", "payments/0"], b"stop")
    stopped(server)
    commit = attributes_of(recorded.one("commit"))
    assert commit["messaging.batch.message_count"] == 3
    assert commit["tidelog.vchannel_count"] == 2
    broadcast = recorded.one("broadcast")
    assert attributes_of(broadcast)["tidelog.first_tick"] == sent.tick
    (served,) = receiver.named("BroadcastService/Broadcast")
    assert (served.trace_id, served.parent_span_id) == ids_of(broadcast)


async def test_a_consumer_is_linked_to_those_who_sent_what_they_carry(
    server: ServerProcess, recorded: Recorded
) -> None:
    async with tidelog.AsyncClient(server.grpc) as client:
        await client.create_channel("orders")
        with recorded.tracer.start_as_current_span("mine"):
            await client.append("orders", [tracing.inject(b"one"), tidelog.Message(b"two")])
        async with client.consumer("readers", "orders") as consumer:
            batch = await anext(consumer)
    assert [message.payload for message in batch] == [b"one", b"two"]
    consume = recorded.one("consume orders")
    assert attributes_of(consume)["messaging.consumer.group.name"] == "readers"
    assert attributes_of(consume)["messaging.batch.message_count"] == 2
    (link,) = consume.links
    trace_id, span_id = ids_of(recorded.one("mine"))
    assert (link.context.trace_id, link.context.span_id) == (
        int.from_bytes(trace_id, "big"), int.from_bytes(span_id, "big"),
    )  # fmt: skip
    assert consume.parent is None


def test_an_error_is_told_on_both_sides(server: ServerProcess, receiver: Receiver, recorded: Recorded) -> None:
    with (
        tidelog.Client(server.grpc) as client,
        recorded.tracer.start_as_current_span("mine"),
        pytest.raises(tidelog.ChannelNotFoundError),
    ):
        client.append("nowhere", b"one")
    with tidelog.Client(server.grpc) as client, pytest.raises(tidelog.ChannelNotFoundError):
        client.broadcast("nowhere/0", b"one")
    stopped(server)
    assert attributes_of(recorded.one("append nowhere"))["error.type"] == "ChannelNotFoundError"
    (served,) = receiver.named("BroadcastService/Broadcast")
    assert served.status.code == 2


def test_what_a_client_does_not_sample_the_server_does_not_either(server: ServerProcess, receiver: Receiver) -> None:
    recorded = Recorded(ALWAYS_OFF)
    tracing.enable(recorded.provider)
    try:
        with tidelog.Client(server.grpc) as client, recorded.tracer.start_as_current_span("mine"):
            client.create_channel("orders")
            client.append("orders", b"one")
            assert sum(len(batch) for batch in client.scan("orders/0")) == 1
    finally:
        tracing.disable()
    stopped(server)
    assert receiver.spans == []
    assert recorded.all == ()


def test_without_a_client_that_traces_the_server_samples_by_its_ratio(tmp_path: Path, receiver: Receiver) -> None:
    settings = {"tracing.endpoint": receiver.endpoint, "tracing.sample_ratio": 1}
    with ServerProcess(tmp_path / "data", settings) as server:
        with tidelog.Client(server.grpc) as client:
            client.create_channel("orders")
        stopped(server)
    (served,) = receiver.named("ChannelService/CreateChannels")
    assert served.parent_span_id == b""


def test_calls_do_not_wait_for_a_receiver_that_is_not_there(tmp_path: Path) -> None:
    settings = {"tracing.endpoint": "http://127.0.0.1:9/v1/traces", "tracing.sample_ratio": 1}
    with ServerProcess(tmp_path / "data", settings) as server, tidelog.Client(server.grpc) as client:
        begin_s = time.monotonic()
        client.create_channel("orders")
        client.append("orders", b"one")
        assert time.monotonic() - begin_s < 5
        server.terminate()
        assert server.wait(20) == 0


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    printed = output_of_example((ROOT / "docs/operate/tracing.md").read_text(), tmp_path)
    assert re.fullmatch(r"2 \[.*Link.*\]\n", printed)


def test_an_endpoint_that_is_no_url_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tracing\.endpoint"):
        load_config(None, {}, {"tracing.endpoint": "collector:4318"})


def test_a_server_that_does_not_trace_imports_nothing_of_it() -> None:
    program = "import sys, tidelog_server.app, tidelog, tidelog.spark; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=240)
    assert [name for name in done.stdout.split() if name.startswith("opentelemetry")] == []
