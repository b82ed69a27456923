"""``tidelog top``. Method: the figures between two samples; the command against a real server."""

import asyncio
import io
import json
from pathlib import Path

import grpc.aio
import pytest
from rich.console import Console
from typer.testing import CliRunner

from tidelog import AsyncClient
from tidelog_cli import http_probe
from tidelog_cli.commands.top import Sample, metrics_of, parse, picture, quantile_s, record
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.root import app
from tidelog_server.rpc.services.cluster import METRICS_PART_BYTES
from tidelog_testing.servers.ports import free_port
from tidelog_testing.servers.processes import ServerProcess

TEXT = """# HELP tidelog_append_messages_total Messages acknowledged.
# TYPE tidelog_append_messages_total counter
tidelog_append_messages_total 10.0
tidelog_append_errors_total{reason="X"} 3.0
tidelog_append_ack_seconds_bucket{le="0.001"} 4.0
tidelog_append_ack_seconds_bucket{le="0.01"} 9.0
tidelog_append_ack_seconds_bucket{le="+Inf"} 10.0
"""


def test_a_prometheus_text_is_read() -> None:
    metrics, acks = parse(TEXT)
    assert metrics == {"tidelog_append_messages_total": 10.0}
    assert acks == [(0.001, 4.0), (0.01, 9.0), (float("inf"), 10.0)]


def test_quantiles_are_of_what_came_between_two_samples() -> None:
    before = [(0.001, 100.0), (0.01, 100.0), (float("inf"), 100.0)]
    after = [(0.001, 150.0), (0.01, 198.0), (float("inf"), 200.0)]
    assert quantile_s(before, after, 0.5) == 0.001
    assert quantile_s(before, after, 0.98) == 0.01
    assert quantile_s(before, after, 1.0) == 0.01, "the last finite bound stands for all values beyond it"
    assert quantile_s(after, after, 0.5) is None


def test_rates_are_per_second_and_a_new_start_counts_from_nothing() -> None:
    def sample(time_s: float, messages: float, channels: dict[str, int]) -> Sample:
        return Sample(time_s, {"tidelog_append_messages_total": messages}, [], channels, {"g": 5, "h": 0})

    told = record(sample(1.0, 100, {"a": 10, "b": 7}), sample(3.0, 300, {"a": 50, "b": 7, "new": 9}))
    assert told["appended_messages_per_s"] == 100.0
    assert told["busiest_channels"] == {"a": 20.0}
    assert told["groups_behind"] == {"g": 5}
    assert record(sample(1.0, 100, {}), sample(2.0, 3, {}))["appended_messages_per_s"] == 0.0
    console = Console(width=120, file=io.StringIO())
    console.print(picture(told))
    shown = console.file.getvalue()  # type: ignore[attr-defined]  # It is the one above.
    assert "appended messages per s" in shown
    assert "20" in shown


def test_mailboxes_are_shown_by_age_and_number() -> None:
    metrics = {
        "tidelog_mailboxes_open": 3.0,
        "tidelog_mailboxes_unloadable": 1.0,
        "tidelog_mailboxes_oldest_available_seconds": 12.3456,
        "tidelog_mailbox_waiting_fetches": 64.0,
    }
    told = record(Sample(1.0, {}, [], {}, {}), Sample(2.0, metrics, [], {}, {}))
    names = ("mailboxes", "damaged_mailboxes", "oldest_mailbox_message_s", "waiting_fetches")
    assert [told[name] for name in names] == [3, 1, 12.346, 64]


async def test_it_prints_a_line_for_each_interval(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        async with AsyncClient(server.grpc) as client:
            await client.create_channel("orders")
            await client.append("orders", [b"x"] * 7)
            await client.create_group("billing", "orders")
        for variables in ({}, {"TIDELOG_HTTP_ENDPOINT": server.http}):
            done = await asyncio.to_thread(
                CliRunner().invoke, app, ["top", "--count", "2", "--interval", "0.1"],
                env={"TIDELOG_ENDPOINT": server.grpc, **variables},
            )  # fmt: skip
            assert done.exit_code == 0, done.output
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            assert [line["groups_behind"] for line in lines] == [{"billing": 7}] * 2
            assert all(line["is_ready"] and line["memory_mib"] > 1 for line in lines)


async def test_the_metrics_are_those_of_the_http_endpoint_in_parts_of_a_bounded_size(tmp_path: Path) -> None:
    names = [f"{'n' * 100}{number}" for number in range(3_000)]
    with ServerProcess(tmp_path / "data", {"metrics.per_vchannel": "true"}) as server:
        async with AsyncClient(server.grpc, timeout_s=60.0) as client:
            await client.create_channels(names, vchannels=2)
            text = await client.metrics_text()
        _, by_http = await asyncio.to_thread(http_probe.get, server.http, "/metrics", 60.0)
    assert len(text) > METRICS_PART_BYTES
    assert [line.split()[0] for line in text.splitlines() if "vchannel=" in line] == [
        line.split()[0] for line in by_http.splitlines() if "vchannel=" in line
    ]


async def test_a_server_without_the_call_is_named_with_what_to_do() -> None:
    # Without any service, it answers as gRPC does for a method that is not there.
    earlier = grpc.aio.server()
    port = earlier.add_insecure_port("127.0.0.1:0")
    await earlier.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            with pytest.raises(CommandError, match=r"is of an earlier version.*: pass --http"):
                await metrics_of(client)
    finally:
        await earlier.stop(None)


def test_without_a_server_it_says_so() -> None:
    done = CliRunner().invoke(app, ["top", "--http", f"127.0.0.1:{free_port()}", "--count", "1"])
    assert isinstance(done.exception, CommandError)
    assert done.exception.code == ExitCode.UNAVAILABLE
    with pytest.raises(CommandError, match="expected host:port"):
        raise CliRunner().invoke(app, ["top", "--http", "nowhere"]).exception  # type: ignore[misc]  # It is one.
