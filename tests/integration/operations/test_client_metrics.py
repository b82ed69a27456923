"""Metrics of clients have the names and attributes of OpenTelemetry's conventions, and cost nothing while disabled.

Method: the SDK with a reader in memory, and operations on a real server; processes of their own show what is imported
and what `opentelemetry-instrument` switches on.
"""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import tidelog
from tidelog import AsyncClient, Client, tracing
from tidelog.testing import TestServer
from tidelog.transport import tracing as hooks_module
from tidelog_testing.parts.fixtures import client_with

client = client_with(orders=2, payments=1)
DURATION = "messaging.client.operation.duration"
SENT = "messaging.client.sent.messages"
CONSUMED = "messaging.client.consumed.messages"
PROCESS = "messaging.process.duration"


class Measured:
    """What a reader in memory finds."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """Return the points of a metric: attributes, and a sum, or the number of measurements."""
        data = self._reader.get_metrics_data()
        assert data is not None
        found = [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        points = [point for metric in found for point in metric.data.data_points]
        return [
            (dict(point.attributes or {}), point.value if hasattr(point, "value") else point.count) for point in points
        ]

    def by(self, name: str, operation: str) -> list[tuple[dict[str, Any], Any]]:
        return [point for point in self.points(name) if point[0]["messaging.operation.name"] == operation]


@pytest.fixture
def measured() -> Iterator[Measured]:
    measured = Measured()
    tracing.enable_metrics(measured.provider)
    yield measured
    tracing.disable()


def of(client: AsyncClient, operation: str, kind: str, vchannel: str, **more: Any) -> dict[str, Any]:
    """Return the attributes that a measurement must have."""
    channel, _, index = vchannel.partition("/")
    host, _, port = client.endpoint.rpartition(":")
    found = {
        "messaging.system": "tidelog", "messaging.operation.name": operation, "messaging.operation.type": kind,
        "messaging.destination.name": channel, "server.address": host, "server.port": int(port),
    }  # fmt: skip
    return found | ({"messaging.destination.partition.id": index} if index else {}) | more


async def test_appends_and_batches_of_producers_are_measured(client: AsyncClient, measured: Measured) -> None:
    for _ in range(3):
        await client.append("orders/1", [b"a", b"b"])
    by = of(client, "append", "send", "orders/1")
    assert measured.points(SENT) == [(by, 6)]
    assert measured.points(DURATION) == [(by, 3)]
    async with client.producer("orders/1", linger_s=1) as producer:
        await producer.send_many([b"x"] * 1_000)
    # One measurement for the batch, not one for each message.
    assert measured.points(SENT) == [(by, 1_006)]
    assert measured.points(DURATION) == [(by, 4)]


async def test_a_refusal_has_the_class_of_its_error(client: AsyncClient, measured: Measured) -> None:
    with pytest.raises(tidelog.ChannelNotFoundError):
        await client.append("absent/0", b"x")
    by = of(client, "append", "send", "absent/0", **{"error.type": "ChannelNotFoundError"})
    assert measured.points(DURATION) == [(by, 1)]
    producer = client.producer("absent/0")
    await producer.send(b"x")
    with pytest.raises(tidelog.ChannelNotFoundError):
        await producer.flush()
    assert measured.points(SENT) == [(by, 2)]


async def test_commits_and_broadcasts_are_measured(client: AsyncClient, measured: Measured) -> None:
    async with client.txn() as txn:
        await txn.append("orders/0", [b"a", b"b"])
        await txn.append("orders/1", b"c")
    await client.broadcast(["orders/0", "payments/0"], b"stop")
    ((commit, sent),) = measured.by(SENT, "commit")
    assert (commit, sent) == (of(client, "commit", "send", "orders"), 3)
    ((broadcast, sent),) = measured.by(SENT, "broadcast")
    assert "messaging.destination.name" not in broadcast
    assert sent == 1
    assert [count for _, count in measured.points(DURATION)] == [1, 1]


async def test_a_commit_of_mailboxes_alone_is_measured(client: AsyncClient, measured: Measured) -> None:
    await client.mailboxes.create("jobs")
    async with client.txn() as txn:
        txn.send("jobs", b"job")
    assert [len(ids) for ids in txn.result.sent.values()] == [1]
    assert [count for _, count in measured.by(DURATION, "commit")] == [1]


async def test_scans_and_consumers_count_what_they_deliver_once(client: AsyncClient, measured: Measured) -> None:
    await client.append("orders/0", [b"a", b"b"])
    assert sum([len(batch) async for batch in client.scan("orders/0")]) == 2
    assert measured.points(CONSUMED) == [(of(client, "scan", "receive", "orders/0"), 2)]
    group = {"messaging.consumer.group.name": "billing"}
    with pytest.raises(ZeroDivisionError):
        async with client.consumer("billing", "orders") as consumer:
            await anext(consumer)
            await consumer.commit()
            await client.append("orders/0", b"c")
            await anext(consumer)
            raise ZeroDivisionError
    assert measured.by(CONSUMED, "consume") == [(of(client, "consume", "receive", "orders/0", **group), 3)]
    assert measured.by(CONSUMED, "scan") == [(of(client, "scan", "receive", "orders/0"), 2)]
    by = of(client, "process", "process", "orders/0", **group)
    assert measured.points(PROCESS) == [(by, 1), (by | {"error.type": "ZeroDivisionError"}, 1)]


async def test_metrics_and_traces_are_enabled_in_any_order_and_disabled_together(client: AsyncClient) -> None:
    measured = Measured()
    try:
        tracing.enable_metrics(measured.provider)
        tracing.enable()
        await client.append("orders/0", b"a")
        assert [count for _, count in measured.points(SENT)] == [1]
    finally:
        tracing.disable()
    assert hooks_module.hooks is None
    await client.append("orders/0", b"a")
    assert [count for _, count in measured.points(SENT)] == [1]


PROGRAM = """
import json, sys
import tidelog
if not {by_instrument}:
    assert not [name for name in sys.modules if name.startswith("opentelemetry")]
with tidelog.Client(sys.argv[1]) as client:
    client.ensure_channel("films", vchannels=1)
    if {by_instrument}:
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        reader = InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([reader]))
    with client.producer("films") as producer:
        producer.send_many([b"x"] * 10)
    client.append("films", b"x")
    for batch in client.scan("films"):
        pass
    with client.consumer("viewers", "films") as consumer:
        next(consumer)
if {by_instrument}:
    data = json.loads(reader.get_metrics_data().to_json())
    print(json.dumps(sorted({{
        metric["name"] for resource in data["resource_metrics"]
        for scope in resource["scope_metrics"] for metric in scope["metrics"]
    }})))
else:
    from tidelog.transport import tracing
    assert tracing.hooks is None
    assert not [name for name in sys.modules if name.startswith("opentelemetry")]
    print("[]")
"""


@pytest.mark.parametrize("by_instrument", [True, False])
def test_opentelemetry_instrument_enables_them_and_nothing_else_does(
    tidelog_server: TestServer, tmp_path: Path, *, by_instrument: bool
) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAM.format(by_instrument=by_instrument))
    command = [sys.executable, str(script), tidelog_server.endpoint]
    if by_instrument:
        command = [str(Path(sysconfig.get_path("scripts")) / "opentelemetry-instrument"), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == (sorted([CONSUMED, DURATION, PROCESS, SENT]) if by_instrument else [])


def test_the_names_are_those_of_the_conventions() -> None:
    semconv = pytest.importorskip("opentelemetry.semconv._incubating.metrics.messaging_metrics")
    assert semconv.MESSAGING_CLIENT_OPERATION_DURATION == DURATION
    assert semconv.MESSAGING_CLIENT_SENT_MESSAGES == SENT
    assert semconv.MESSAGING_CLIENT_CONSUMED_MESSAGES == CONSUMED
    assert semconv.MESSAGING_PROCESS_DURATION == PROCESS


def test_a_synchronous_producer_is_measured(tidelog_client: Client, measured: Measured) -> None:
    tidelog_client.ensure_channel("songs", vchannels=1)
    with tidelog_client.producer("songs/0") as producer:
        producer.send(b"a").result()
        producer.send_many([b"b"] * 100)
    assert [count for _, count in measured.points(SENT)] == [101]
