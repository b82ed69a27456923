"""Goal: the parts that a task of `verify` yields are right for its rows, for any division into batches.

Method: hypothesis draws ticks and the ends of batches; plain Python computes the expected findings. Transactions and
sequences are written by hand. Pages are checked as text.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidelog import Tick, VchannelDescription
from tidelog.spark.archive.plan import begin_behind
from tidelog.spark.pipelines.checks import COLUMNS, Sequences, check_batches
from tidelog.spark.pipelines.digest import digest_batch
from tidelog.spark.pipelines.html import bars, lines
from tidelog.spark.pipelines.tasks import arrow_schema, rows_of

Part = dict[str, Any]


def a_batch(ticks: Sequence[int], **columns: Sequence[Any]) -> pa.RecordBatch:
    count = len(ticks)
    plain: dict[str, Any] = {
        "channel": ["a"] * count, "vchannel": [0] * count, "tick": ticks, "type": [0] * count, "key": [None] * count,
        "payload": [b"x"] * count, "properties": [[]] * count, "txn_id": [None] * count, "broadcast_id": [None] * count,
    }  # fmt: skip
    return pa.RecordBatch.from_pydict({**plain, **columns}, arrow_schema(*COLUMNS))


def parts(*batches: pa.RecordBatch, sequences: Sequences | None = None) -> list[Part]:
    names = ("kind", "name", "id", "a", "b", "n", "more")
    return [dict(zip(names, row, strict=True)) for row in rows_of(check_batches(batches, sequences))]


def of_kind(kind: str, found: list[Part]) -> list[Part]:
    return [part for part in found if part["kind"] == kind]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.lists(st.integers(1, 29), max_size=4))
def test_runs_and_breaks_are_those_of_the_ticks_however_they_are_cut(ticks: list[int], cuts: list[int]) -> None:
    bounds = sorted({0, len(ticks), *(cut for cut in cuts if cut < len(ticks))})

    found = parts(*(a_batch(ticks[begin:end]) for begin, end in pairwise(bounds)))

    breaks = [(before, tick) for before, tick in pairwise(ticks) if tick <= before]
    kinds = [json.loads(part["more"])["kind"] for part in of_kind("finding", found)]
    assert kinds == ["repeated" if before == tick else "order" for before, tick in breaks]
    runs = of_kind("run", found)
    assert sum(run["n"] for run in runs) == len(ticks)
    assert len(runs) == len(breaks) + 1
    assert [run["b"] for run in runs] == [before for before, _ in breaks] + [ticks[-1]]
    [totals] = of_kind("vchannel", found)
    assert (totals["name"], totals["n"]) == ("a/0", len(ticks))
    assert json.loads(totals["more"])["digest"] == str(digest_batch(a_batch(ticks)).full)


def test_rows_of_several_vchannels_are_told_apart() -> None:
    batch = a_batch([1, 1, 2, 2], vchannel=[0, 1, 0, 1])
    found = parts(batch)
    assert of_kind("finding", found) == []
    assert [(totals["name"], totals["n"]) for totals in of_kind("vchannel", found)] == [("a/0", 2), ("a/1", 2)]


def test_transactions_are_told_with_their_span_and_what_lies_among_them() -> None:
    found = parts(a_batch([1, 2, 3, 4, 5], txn_id=[7, 8, None, 8, None]))
    assert [(part["id"], part["a"], part["b"], part["n"]) for part in of_kind("txn", found)] == [
        (7, 1, 1, 1),
        (8, 2, 4, 2),
    ]
    [finding] = of_kind("finding", found)
    assert json.loads(finding["more"])["kind"] == "transaction_mixed"


def test_sequences_are_runs_of_each_producer() -> None:
    properties = [[("p", who), ("s", number)] for who, number in (("x", "1"), ("y", "5"), ("x", "2"), ("x", "4"))]
    found = parts(a_batch([1, 2, 3, 4], properties=properties), sequences=Sequences("s", "p"))
    runs = sorted((part["name"], part["id"], part["a"], part["n"]) for part in of_kind("sequence", found))
    assert runs == [("x", 1, 1, 2), ("x", 4, 4, 1), ("y", 5, 2, 1)]

    malformed = parts(a_batch([1, 2], properties=[[("s", "one")], []]), sequences=Sequences("s"))
    assert [json.loads(part["more"])["kind"] for part in of_kind("finding", malformed)] == ["sequence_malformed"]


def test_a_trim_that_removed_nothing_behind_the_archive_lost_nothing() -> None:
    def vchannel(trim_tick: int, last_tick: int) -> VchannelDescription:
        return VchannelDescription("a/0", Tick(trim_tick), Tick(last_tick), 0, 0)

    assert begin_behind(vchannel(trim_tick=0, last_tick=50), archived_end=40) == 40
    assert begin_behind(vchannel(trim_tick=45, last_tick=39), archived_end=40) == 45
    assert begin_behind(vchannel(trim_tick=45, last_tick=50), archived_end=40) == 40


def test_charts_show_each_value_and_escape_names() -> None:
    text = bars([("<a>", 1_000), ("b", 0)])
    assert "&lt;a&gt;" in text
    assert "1,000" in text
    drawn = lines({"a&b": [("2026-01-01", 1.0), ("2026-01-02", 2.0)], "c": [("2026-01-02", 0.5)]})
    assert drawn.count("<polyline") == 2
    assert "a&amp;b" in drawn
    assert "2026-01-02" in drawn
