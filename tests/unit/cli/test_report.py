"""Benchmark reports: the documented keys, and the arithmetic of the figures."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_cli.metrics_text import without_labels
from tidelog_server.commands.bench.floors.rocksdb_floor import group_sizes
from tidelog_server.commands.bench.payloads import payload_lists
from tidelog_server.commands.bench.report import Floor, Report, percentiles


def test_the_json_object_has_the_documented_keys() -> None:
    report = Report(
        name="append", settings={"size": 100}, messages_per_second=2e6, megabytes_per_second=200.0,
        latency_us={"p50": 1.0, "p99": 2.0, "p999": 3.0}, server_rss_bytes=1,
        floor=Floor("rocksdict alone", "messages_per_second", 2.5e6), ratio=0.8,
    )  # fmt: skip

    assert json.loads(report.to_json()) == {
        "name": "append",
        "settings": {"size": 100},
        "messages_per_second": 2e6,
        "megabytes_per_second": 200.0,
        "latency_us": {"p50": 1.0, "p99": 2.0, "p999": 3.0},
        "server_rss_bytes": 1,
        "floor": {"name": "rocksdict alone", "messages_per_second": 2.5e6},
        "ratio": 0.8,
    }


def test_figures_that_a_benchmark_does_not_have_are_left_out() -> None:
    assert json.loads(Report(name="x", settings={}).to_json()) == {"name": "x", "settings": {}}


def test_percentiles_are_in_microseconds_and_in_order() -> None:
    found = percentiles([number / 1e6 for number in range(1_000, 0, -1)])

    assert found == pytest.approx({"p50": 501, "p99": 991, "p999": 1_000})
    assert percentiles([1e-6]) == pytest.approx({"p50": 1, "p99": 1, "p999": 1})


@given(count=st.integers(1, 5_000), average=st.floats(0.1, 300))
def test_groups_of_the_floor_hold_every_batch_and_keep_the_average(count: int, average: float) -> None:
    sizes = list(group_sizes(count, average))

    assert sum(sizes) == count
    assert all(0 < size for size in sizes)
    assert all(abs(size - max(1.0, average)) <= 1 for size in sizes[:-1])


@given(count=st.integers(0, 500), per_batch=st.integers(1, 60))
def test_payload_lists_hold_the_number_of_messages_asked_for(count: int, per_batch: int) -> None:
    lists = list(payload_lists([b"a", b"b", b"c"], count=count, per_batch=per_batch))

    assert sum(map(len, lists)) == count
    assert all(len(payloads) == per_batch for payloads in lists[:-1])


def test_metrics_with_labels_are_passed_over() -> None:
    text = '# HELP a b\na_total 3.0\nb_bucket{le="1"} 7\nc_sum 0.5\n'

    assert without_labels(text) == {"a_total": 3.0, "c_sum": 0.5}
