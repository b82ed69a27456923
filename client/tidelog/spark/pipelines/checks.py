"""The checks of ``verify`` that one task can do on its rows, in numpy. ``cross_checks`` does those that need all rows.

A task yields *parts*, rows of PARTS that summarise its rows. Their kinds::

    vchannel   name = vchannel, a, b = first and last tick, n = messages, more = digests and bytes
    run        name = vchannel, a, b = first and last tick of rows with increasing ticks, n = messages
    finding    name = vchannel or producer, a = tick, more = kind and text
    txn        name = vchannel, id = transaction, a, b = first and last tick, n = messages; may occur several times
    broadcast  name = vchannel, id = broadcast, a = tick, n = messages
    sequence   name = producer, id = first sequence, a, b = first and last tick, n = number of consecutive sequences
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.archive.manifest import ArchivedFile
from tidelog.spark.pipelines.digest import COLUMNS as DIGEST_COLUMNS
from tidelog.spark.pipelines.digest import Digests, digest_batch

COLUMNS: Final = (*DIGEST_COLUMNS, "txn_id", "broadcast_id")
"""The columns that the checks read."""

PARTS: Final = "kind string, name string, id bigint, a bigint, b bigint, n bigint, more string"
_PARTS: Final = pa.schema(
    [("kind", "string"), ("name", "string"), *((name, "int64") for name in ("id", "a", "b", "n")), ("more", "string")]
)
MAX_FINDINGS: Final = 100
"""Maximum number of findings that a task reports; a damaged file may have millions."""
_MAX_RUNS: Final = 1_000

Ticks = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sequences:
    """The properties in which producers number their messages.

    Attributes:
        sequence: Property with a whole number that increases by one with each message of a producer.
        producer: Property that identifies the producer; empty if there is only one.
    """

    sequence: str
    producer: str = ""


@dataclass(slots=True)
class _Totals:
    """Totals of one vchannel; ``runs`` are [first tick, last tick, messages]."""

    runs: list[list[int]] = field(default_factory=list)
    messages: int = 0
    first_tick: int = 0
    last_tick: int = 0
    bytes: int = 0
    digests: Digests = field(default_factory=Digests)


class PartitionCheck:
    """Checks batches of rows. The rows of a vchannel should come in tick order."""

    def __init__(self, sequences: Sequences | None = None) -> None:
        self._sequences = sequences
        self._totals: dict[str, _Totals] = {}
        self._findings = 0
        self._rows: list[tuple[Any, ...]] = []

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Check the rows of ``batch``, which has COLUMNS, and yield the parts that are final."""
        for name, rows in by_vchannel(batch):
            self._add_vchannel(name, rows)
            yield from _transactions(name, rows)
            self._add_broadcasts(name, rows)
        if self._sequences is not None:
            yield from self._add_sequences(batch, self._sequences)
        if self._rows:
            yield self._taken_rows()

    def unreadable(self, vchannel: str, error: Exception) -> None:
        """Add a finding: the following messages of ``vchannel`` cannot be read."""
        totals = self._totals.get(vchannel)
        self._find(
            "unreadable", vchannel, totals.last_tick if totals else 0, f"the messages after it cannot be read: {error}"
        )

    def compare(self, file: ArchivedFile) -> None:
        """Add a finding if the added rows, all those of ``file``, differ from its record in the manifest."""
        totals = self._totals.get(file.vchannel, _Totals())
        if wrong := file.mismatch(totals.messages, str(totals.digests.full), str(totals.digests.content)):
            self._find("archive", file.vchannel, file.first_tick, f"the archived file {wrong}")

    def finish(self) -> pa.RecordBatch:
        """Return the remaining parts of all added rows."""
        for name, totals in self._totals.items():
            more = {"digest": str(totals.digests.full), "content": str(totals.digests.content), "bytes": totals.bytes}
            self._rows.append(
                ("vchannel", name, None, totals.first_tick, totals.last_tick, totals.messages, json.dumps(more))
            )
            self._rows += [("run", name, None, *run, None) for run in totals.runs]
        return self._taken_rows()

    def _add_vchannel(self, name: str, rows: pa.RecordBatch) -> None:
        totals = self._totals.setdefault(name, _Totals())
        ticks = numbers(rows, "tick")
        payloads, keys = rows.column("payload"), rows.column("key")
        totals.bytes += int(pc.sum(pc.binary_length(payloads)).as_py() or 0)
        totals.bytes += int(pc.sum(pc.binary_length(keys)).as_py() or 0)
        totals.digests = totals.digests.plus(digest_batch(rows))
        grows = np.diff(ticks) > 0
        if totals.messages:
            grows = np.concatenate([[ticks[0] > totals.last_tick], grows])
        else:
            totals.first_tick = int(ticks[0])
            grows = np.concatenate([[False], grows])
        begins = np.flatnonzero(~grows)
        self._find_breaks(name, totals, ticks, begins[begins > 0] if not totals.messages else begins)
        _add_runs(totals, ticks, begins)
        totals.messages += len(ticks)
        totals.last_tick = int(ticks[-1])

    def _find_breaks(self, name: str, totals: _Totals, ticks: Ticks, places: npt.NDArray[np.intp]) -> None:
        for place in places[: MAX_FINDINGS + 1].tolist():
            before = int(ticks[place - 1]) if place else totals.last_tick
            tick = int(ticks[place])
            what = "occurs twice" if tick == before else f"follows tick {before}"
            self._find("repeated" if tick == before else "order", name, tick, f"tick {tick} {what}")

    def _add_broadcasts(self, name: str, rows: pa.RecordBatch) -> None:
        ids = rows.column("broadcast_id")
        if ids.null_count == len(ids):
            return
        there = rows.filter(ids.is_valid())
        self._rows += [
            ("broadcast", name, number, tick, tick, 1, None)
            for number, tick in zip(
                there.column("broadcast_id").to_pylist(), there.column("tick").to_pylist(), strict=True
            )
        ]

    def _add_sequences(self, batch: pa.RecordBatch, names: Sequences) -> Iterator[pa.RecordBatch]:
        properties = batch.column("properties")
        texts = pc.map_lookup(properties, names.sequence, "first")
        producers = pc.map_lookup(properties, names.producer, "first") if names.producer else None
        there = texts.is_valid() if producers is None else pc.and_(texts.is_valid(), producers.is_valid())
        is_number = pc.fill_null(pc.match_substring_regex(texts, r"^\d{1,18}$"), fill_value=False)
        for row in pc.indices_nonzero(pc.and_not(there, is_number))[: MAX_FINDINGS + 1].to_pylist():
            tick = batch.column("tick")[row].as_py()
            text = f"the property {names.sequence!r} is {texts[row].as_py()!r}, expected a whole number"
            self._find("sequence_malformed", batch.column("channel")[row].as_py(), tick, text)
        there = pc.and_(there, is_number)
        rows = batch.filter(there)
        if rows.num_rows:
            whose = producers.filter(there) if producers is not None else pa.repeat("", rows.num_rows)
            yield _sequence_runs(whose, pc.cast(texts.filter(there), pa.int64()), rows)

    def _find(self, kind: str, name: str, tick: int, text: str) -> None:
        self._findings += 1
        if self._findings <= MAX_FINDINGS:
            self._rows.append(("finding", name, None, tick, tick, 1, json.dumps({"kind": kind, "text": text})))

    def _taken_rows(self) -> pa.RecordBatch:
        rows, self._rows = self._rows, []
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(_PARTS)
        return pa.RecordBatch.from_arrays(
            [pa.array(column, kind.type) for column, kind in zip(columns, _PARTS, strict=True)], schema=_PARTS
        )


def check_batches(batches: Iterable[pa.RecordBatch], sequences: Sequences | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the parts of readable batches, which have COLUMNS."""
    check = PartitionCheck(sequences)
    for batch in batches:
        if batch.num_rows:
            yield from check.add(batch)
    yield check.finish()


def by_vchannel(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each vchannel, in their order. A batch usually has one vchannel."""
    channels, indexes = pc.unique(batch.column("channel")), pc.unique(batch.column("vchannel"))
    if len(channels) == 1 and len(indexes) == 1:
        yield f"{channels[0].as_py()}/{indexes[0].as_py()}", batch
        return
    for channel in channels:
        for index in indexes:
            both = pc.and_(pc.equal(batch.column("channel"), channel), pc.equal(batch.column("vchannel"), index))
            rows = batch.filter(both)
            if rows.num_rows:
                yield f"{channel.as_py()}/{index.as_py()}", rows


def numbers(batch: pa.RecordBatch, name: str) -> Ticks:
    """Return a column of whole numbers that has no NULL."""
    found: Ticks = batch.column(name).to_numpy(zero_copy_only=False)
    return found


def _add_runs(totals: _Totals, ticks: Ticks, begins: npt.NDArray[np.intp]) -> None:
    """Add rows to the last run, and start a new run at each of ``begins``."""
    bounds = [*begins.tolist(), len(ticks)]
    if bounds[0] > 0:
        totals.runs[-1][1] = int(ticks[bounds[0] - 1])
        totals.runs[-1][2] += bounds[0]
    for begin, end in pairwise(bounds):
        if len(totals.runs) < _MAX_RUNS:
            totals.runs.append([int(ticks[begin]), int(ticks[end - 1]), end - begin])
        else:
            # Bounds memory: with so much damage, further runs are merged into the last one.
            totals.runs[-1][1] = int(ticks[end - 1])
            totals.runs[-1][2] += end - begin


def _transactions(name: str, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a part for each transaction, and a finding for each that has rows without a transaction among its own."""
    ids = rows.column("txn_id")
    if ids.null_count == len(ids):
        return
    valid = ids.is_valid().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(valid)
    own = ids.drop_null().to_numpy()
    order = np.argsort(own, kind="stable")
    own, places = own[order], places[order]
    begins = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]]))
    ends = np.append(begins[1:], len(own)) - 1
    ticks = numbers(rows, "tick")
    first, last = ticks[places[begins]], ticks[places[ends]]
    yield _part_batch("txn", name, own[begins], first=first, last=last, counts=ends - begins + 1)
    strangers = np.concatenate([[0], np.cumsum(~valid)])
    among = np.flatnonzero(strangers[places[ends]] > strangers[places[begins]])[:MAX_FINDINGS]
    if len(among):
        more = json.dumps({"kind": "transaction_mixed", "text": "other messages are between those of a transaction"})
        yield _part_batch(
            "finding",
            name,
            own[begins][among],
            first=first[among],
            last=last[among],
            counts=np.ones_like(among),
            more=more,
        )


def _sequence_runs(producers: pa.Array, sequences: pa.Array, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the sequences of each producer as runs of consecutive numbers."""
    encoded = producers.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    codes, ticks = codes[order], numbers(rows, "tick")[order]
    found = sequences.to_numpy(zero_copy_only=False)[order]
    is_new = (codes[1:] != codes[:-1]) | (found[1:] != found[:-1] + 1)
    begins = np.flatnonzero(np.concatenate([[True], is_new]))
    ends = np.append(begins[1:], len(found)) - 1
    names = encoded.dictionary.take(pa.array(codes[begins]))
    return _part_batch(
        "sequence", names, found[begins], first=ticks[begins], last=ticks[ends], counts=ends - begins + 1
    )


def _part_batch(
    kind: str, names: str | pa.Array, ids: Any, *, first: Any, last: Any, counts: Any, more: str | None = None
) -> pa.RecordBatch:
    rows = len(ids)
    named = pa.repeat(names, rows) if isinstance(names, str) else names.cast(pa.string())
    columns = [pa.repeat(kind, rows), named, *(pa.array(each, pa.int64()) for each in (ids, first, last, counts))]
    columns.append(pa.nulls(rows, pa.string()) if more is None else pa.repeat(more, rows))
    return pa.RecordBatch.from_arrays(columns, schema=_PARTS)
