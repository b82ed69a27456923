"""The metrics tell what happens: calls by their outcome, lag of groups, ticks of vchannels, the process.

Method: real servers, and the text of `/metrics` as Prometheus reads it. The page docs/operate/metrics.md is
compared with the metrics of a server in `tests/deploy/test_metrics_page.py`.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import tidelog
from tidelog.v1 import channel_service_pb2, wal_service_pb2
from tidelog_server.app import Server
from tidelog_testing.parts.grpc_calls import a_request, connected, refused, running_server

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def samples(server: Server) -> Samples:
    text = (await server._render_metrics()).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def eventually(server: Server, holds: Callable[[Samples], bool]) -> Samples:
    """Return the metrics once something holds of them, within 20 s."""
    deadline_s = time.monotonic() + 20
    while not holds(found := await samples(server)):
        assert time.monotonic() < deadline_s, found
        await asyncio.sleep(0.02)
    return found


def handled(found: Samples, method: str, code: str) -> float:
    return sum(
        value
        for (name, labels), value in found.items()
        if name == "grpc_server_handled_total" and {("grpc_code", code), ("grpc_method", method)} <= set(labels)
    )


async def test_calls_are_counted_by_method_and_outcome_and_unary_ones_are_timed() -> None:
    async with running_server() as server, connected(server) as client:
        await client.create("a")
        async with refused():
            await client.channels.DescribeChannels(channel_service_pb2.DescribeChannelsRequest(names=["b"]))
        await client.append_all([a_request("a", b"x")])
        found = await eventually(server, lambda found: handled(found, "AppendStream", "OK") == 1)
        assert handled(found, "CreateChannels", "OK") == 1
        assert handled(found, "DescribeChannels", "NotFound") == 1
        labels = (
            ("grpc_method", "CreateChannels"), ("grpc_service", "tidelog.v1.ChannelService"), ("grpc_type", "unary"),
        )  # fmt: skip
        assert found["grpc_server_started_total", labels] == 1
        assert found["grpc_server_handling_seconds_count", labels] == 1
        assert 0 < found["grpc_server_handling_seconds_sum", labels] < 10
        assert found["tidelog_grpc_server_open_calls", (("method", "CreateChannels"),)] == 0
        types = {dict(labels)["grpc_method"]: dict(labels)["grpc_type"] for name, labels in found if "started" in name}
        assert (types["AppendStream"], types["Scan"]) == ("bidi_stream", "server_stream")
        streams = [key for key in found if key[0].endswith("handling_seconds_sum") and "AppendStream" in str(key[1])]
        assert streams == []


async def test_a_call_that_its_client_ends_is_counted_as_cancelled() -> None:
    async with running_server() as server, connected(server) as client:
        await client.create("a")
        request = wal_service_pb2.ScanRequest(sources=[wal_service_pb2.ScanSource(vchannel="a/0")])
        request.end.follow.SetInParent()
        scan = client.wal.Scan(request)
        open_scans = ("tidelog_grpc_server_open_calls", (("method", "Scan"),))
        await eventually(server, lambda found: found.get(open_scans) == 1)
        scan.cancel()
        found = await eventually(server, lambda found: handled(found, "Scan", "Canceled") == 1)
        assert found[open_scans] == 0


async def test_the_lag_of_groups_is_told_together_and_for_each_only_if_asked() -> None:
    async with running_server() as silent, running_server(metrics__per_group="true") as server:
        for each in (silent, server):
            async with tidelog.AsyncClient(each.grpc_endpoint) as client:
                await client.create_channel("a", vchannels=2)
                for group in ("behind", "done"):
                    await client.create_group(group, "a")
                results = {
                    "a/0": await client.vchannel("a/0").append([b"x", b"y"]),
                    "a/1": await client.vchannel("a/1").append(b"z"),
                }
                await client.commit_positions(
                    tidelog.PositionCommit("done", vchannel, result.last_tick + 1)
                    for vchannel, result in results.items()
                )
            await each._node.lag_meter.measure()
        found = await samples(server)
        assert found["tidelog_groups_lag_messages", ()] == 3
        assert found["tidelog_groups_lag_max_seconds", ()] > 0
        assert found["tidelog_group_lag_messages", (("group", "behind"),)] == 3
        assert found["tidelog_group_lag_messages", (("group", "done"),)] == 0
        assert found["tidelog_group_lag_seconds", (("group", "done"),)] == 0
        assert found["tidelog_group_lag_seconds", (("group", "behind"),)] > 0
        without = await samples(silent)
        assert without["tidelog_groups_lag_messages", ()] == 3
        assert [key for key in without if key[0] == "tidelog_group_lag_messages"] == []


async def test_ticks_of_vchannels_are_told_only_if_asked_and_go_with_their_channel() -> None:
    async with running_server(metrics__per_vchannel="true") as server, connected(server) as client:
        await client.create("a", "b")
        await client.append_all([a_request("a", b"x")])
        found = await samples(server)
        tail = server._node.directory.find("a/0")[1].durable_tick
        assert found["tidelog_vchannel_tail_tick", (("vchannel", "a/0"),)] == float(tail)
        await server._node.lifecycle.destroy(["a"], ignore_missing=False)
        assert {labels for name, labels in await samples(server) if name == "tidelog_vchannel_tail_tick"} == {
            (("vchannel", "b/0"),)
        }
    async with running_server() as server, connected(server) as client:
        await client.create("a")
        assert [key for key in await samples(server) if key[0].startswith("tidelog_vchannel_")] == []


@pytest.mark.parametrize("name", ["process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total"])
async def test_the_process_is_told_by_the_usual_names(name: str) -> None:
    async with running_server() as server:
        assert (await samples(server))[name, ()] > 0


async def test_a_server_that_is_well_says_what_it_is() -> None:
    async with running_server() as server:
        found = await samples(server)
        assert found["tidelog_ready", ()] == 1
        assert found["tidelog_watermark_lag_seconds", ()] == 0
        (labels,) = [dict(labels) for name, labels in found if name == "tidelog_build_info"]
        assert set(labels) == {"version", "python", "grpcio", "rocksdict"}
        assert found["tidelog_last_tick_timestamp_seconds", ()] == pytest.approx(time.time(), abs=60)
        server._log.begin_shutdown()
        assert (await samples(server))["tidelog_ready", ()] == 0


async def test_renamed_metrics_have_their_old_names_for_one_version() -> None:
    async with running_server() as server, connected(server) as client:
        await client.create("a")
        async with refused():
            await client.channels.DescribeChannels(channel_service_pb2.DescribeChannelsRequest(names=["b"]))
        # A refusal is counted once its call has ended, which its caller may see before.
        found = await eventually(server, lambda found: handled(found, "DescribeChannels", "NotFound") == 1)
        assert found["tidelog_last_tick_seconds", ()] == found["tidelog_last_tick_timestamp_seconds", ()] > 0
        assert found["tidelog_tls_certificate_expires_seconds", ()] == 0
        assert found["tidelog_tls_reload_failures", ()] == found["tidelog_tls_reload_failures_total", ()] == 0
        handled_before = ("tidelog_grpc_server_handled_total", (("code", "NOT_FOUND"), ("method", "DescribeChannels")))
        assert found[handled_before] == handled(found, "DescribeChannels", "NotFound") == 1
        old, new = (
            [
                value
                for (name, labels), value in sorted(found.items())
                if name == wanted and "CreateChannels" in str(labels)
            ]
            for wanted in ("tidelog_grpc_server_handling_seconds_bucket", "grpc_server_handling_seconds_bucket")
        )
        assert old == new
        assert sum(old) > 0
        figures = {labels[0][1]: value for (name, labels), value in found.items() if name == "tidelog_engine"}
        assert figures == {"columns_bytes": found["tidelog_engine_columns_bytes", ()]}
        assert not [name for name, _ in found if name.endswith("_created")]


async def test_figures_of_the_engine_are_metrics_with_the_column_family_as_a_label(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server:
        found = await samples(server)
    assert ("tidelog_engine_sst_bytes", (("family", "columns"),)) in found
    assert ("tidelog_engine_blob_bytes", (("family", "columns"),)) in found
    assert found["tidelog_engine_background_errors", ()] == 0
    old = {labels[0][1] for name, labels in found if name == "tidelog_engine"}
    assert {"columns_sst_bytes", "background_errors"} <= old
    assert found["tidelog_backup_last_success_seconds", ()] == 0


async def test_a_setting_leaves_old_names_out() -> None:
    async with running_server(metrics__old_names=False) as server:
        text = (await server._render_metrics()).decode()
    assert "Old name" not in text
    assert "tidelog_last_tick_timestamp_seconds" in text
    async with running_server() as server:
        text = (await server._render_metrics()).decode()
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(families) == len(set(families))
