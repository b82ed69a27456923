"""The actions and observations of clients, and the judgement whether a log may look like that.

Every payload is a value ``producer:counter`` that is appended once, so the writer of each message is known. An
append is recorded before it is sent; one without an answer stays *unknown*: it may be in the log, whole, or absent.

``check`` judges what a fresh client read after a recovery, ``Following.check`` what one follower received before it.
"""

import json
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from typing import Final

Row = tuple[int, str]
"""Tick and value of one message."""

Log = Mapping[str, Sequence[Row]]
"""Everything that a full read returned, by vchannel, in the order of arrival."""

_SHOWN: Final = 10


class Outcome(StrEnum):
    """Known outcome of an append."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "info"


class Kind(StrEnum):
    """The kinds of anomalies."""

    LOST = "acknowledged, then absent"
    MOVED = "acknowledged at another tick"
    DUPLICATE = "present twice"
    PHANTOM = "never written"
    REFUSED = "present though refused without effect"
    TORN = "a batch in part, or interrupted"
    TICK_REGRESSION = "ticks do not grow"
    SEND_ORDER = "a producer's order is broken"
    REAL_TIME_ORDER = "acknowledged before another was sent, but placed after it"
    TRIMMED = "present though trimmed"
    VANISHED = "seen by a follower, then absent"
    SKIPPED = "skipped by a follower"
    LATE = "seen at or below a tick that was reported complete"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One violation."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(slots=True)
class Append:
    """One batch: the values ``producer:first`` to ``producer:(first + count - 1)``.

    Attributes:
        begin_ns: Monotonic time just before it was sent.
        end_ns: Monotonic time of its answer; None without one.
        first_tick: First tick, as acknowledged; 0 otherwise.
    """

    producer: str
    first: int
    count: int
    vchannel: str
    begin_ns: int
    end_ns: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    first_tick: int = 0

    def values(self) -> list[str]:
        """Return the payloads as text."""
        return [f"{self.producer}:{number}" for number in range(self.first, self.first + self.count)]

    def acknowledge(self, first_tick: int) -> None:
        """Record that the server acknowledged it."""
        self.end_ns, self.outcome, self.first_tick = time.monotonic_ns(), Outcome.OK, first_tick

    def refuse(self) -> None:
        """Record that the server refused it without effect."""
        self.end_ns, self.outcome = time.monotonic_ns(), Outcome.FAIL


@dataclass(slots=True)
class Trim:
    """Progress of trims on a vchannel: certainly below ``done_tick``, possibly below ``tried_tick``."""

    done_tick: int = 0
    tried_tick: int = 0


@dataclass(slots=True)
class History:
    """All appends and trims of a run, in the order of recording."""

    appends: list[Append] = field(default_factory=list)
    trims: defaultdict[str, Trim] = field(default_factory=lambda: defaultdict(Trim))
    _next: Counter[str] = field(default_factory=Counter)

    def intend(self, producer: str, vchannel: str, count: int) -> Append:
        """Record an append that is about to be sent, with unique values."""
        append = Append(producer, self._next[producer], count, vchannel, time.monotonic_ns())
        self._next[producer] += count
        self.appends.append(append)
        return append

    def count(self, outcome: Outcome) -> int:
        """Return the number of appends with this outcome."""
        return sum(append.outcome is outcome for append in self.appends)

    def write(self, path: Path) -> None:
        """Write the history as JSON lines, to investigate a failure."""
        with path.open("w") as file:
            for append in self.appends:
                file.write(json.dumps({"f": "append", **asdict(append)}) + "\n")
            for vchannel, trim in self.trims.items():
                file.write(json.dumps({"f": "trim", "vchannel": vchannel, **asdict(trim)}) + "\n")


def check(history: History, log: Log) -> list[Anomaly]:
    """Return everything in ``log`` that contradicts ``history``; empty if all promises were kept."""
    ticks = {value: tick for rows in log.values() for tick, value in rows}
    return [*_rows(history, log), *_batches(history, log, ticks), *_orders(history, ticks)]


@dataclass(slots=True)
class Following:
    """What one follower of some vchannels received, over all its scans.

    Attributes:
        vchannels: The followed vchannels.
        reached: Everything at or below was delivered: by the order of delivery, or by a watermark.
        rows: Vchannel, tick and value of each message, in the order of delivery.
        anomalies: Anomalies that are visible without reading the log.
    """

    vchannels: Sequence[str]
    reached: int = 0
    rows: list[tuple[str, int, str]] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)

    def saw(self, vchannel: str, tick: int, value: str) -> None:
        """Record a message. Ticks are unique on a node, and a scan merges its vchannels in their order."""
        if tick <= self.reached:
            self.anomalies.append(Anomaly(Kind.LATE, f"{value} at {tick} of {vchannel} after {self.reached}"))
        self.reached = max(self.reached, tick)
        self.rows.append((vchannel, tick, value))

    def told(self, watermark: int) -> None:
        """Record that nothing at or below ``watermark`` will be delivered."""
        self.reached = max(self.reached, watermark)

    def check(self, log: Log) -> list[Anomaly]:
        """Return the differences from ``log``, which was read after a recovery and later than everything received."""
        seen = set(self.rows)
        expected = {
            (vchannel, tick, value)
            for vchannel in self.vchannels
            for tick, value in log[vchannel]
            if tick <= self.reached
        }
        return [
            *self.anomalies,
            *(Anomaly(Kind.VANISHED, f"{row}") for row in sorted(seen - expected)),
            *(Anomaly(Kind.SKIPPED, f"{row}") for row in sorted(expected - seen)),
        ]


def shown(anomalies: Sequence[Anomaly]) -> str:
    """Return counts by kind and the first few anomalies, as the text of a failure."""
    counts = Counter(anomaly.kind for anomaly in anomalies)
    return "\n".join([*(f"{count} times {kind}" for kind, count in counts.items()), *map(str, anomalies[:_SHOWN])])


def _rows(history: History, log: Log) -> Iterator[Anomaly]:
    """Judge the messages of each vchannel, one after the other."""
    home = {value: append.vchannel for append in history.appends for value in append.values()}
    seen: set[str] = set()
    for vchannel, rows in log.items():
        done_tick = history.trims[vchannel].done_tick
        previous_tick = 0
        for tick, value in rows:
            where = f"{value} at {tick} of {vchannel}"
            if tick <= previous_tick:
                yield Anomaly(Kind.TICK_REGRESSION, f"{where} follows {previous_tick}")
            if value in seen:
                yield Anomaly(Kind.DUPLICATE, where)
            if home.get(value) != vchannel:
                yield Anomaly(Kind.PHANTOM, where)
            if tick < done_tick:
                yield Anomaly(Kind.TRIMMED, f"{where}, trimmed below {done_tick}")
            seen.add(value)
            previous_tick = tick


def _batches(history: History, log: Log, ticks: Mapping[str, int]) -> Iterator[Anomaly]:
    """Judge each append by the ticks of its messages."""
    floors = {vchannel: _floor(history.trims[vchannel], rows) for vchannel, rows in log.items()}
    for append in history.appends:
        found = [ticks.get(value) for value in append.values()]
        at = f"{append.producer}:{append.first} +{append.count} in {append.vchannel}, found at {found[0]}..{found[-1]}"
        is_present = any(tick is not None for tick in found)
        if append.outcome is Outcome.FAIL:
            if is_present:
                yield Anomaly(Kind.REFUSED, at)
            continue
        is_known = append.outcome is Outcome.OK
        if not is_known and not is_present:
            continue
        base_tick = append.first_tick if is_known else _base_tick(found)
        for tick, expected in zip(found, range(base_tick, base_tick + append.count), strict=True):
            if tick is None and expected >= floors[append.vchannel]:
                yield Anomaly(Kind.LOST if is_known else Kind.TORN, f"{at}, expected at {expected}")
            elif tick is not None and tick != expected:
                yield Anomaly(Kind.MOVED if is_known else Kind.TORN, f"{at}, expected at {expected}")


def _floor(trim: Trim, rows: Sequence[Row]) -> int:
    """Return the tick below which messages may be absent: an unanswered trim happened whole or not at all."""
    is_trim_undone = bool(rows) and rows[0][0] < trim.tried_tick
    return trim.done_tick if is_trim_undone else max(trim.done_tick, trim.tried_tick)


def _base_tick(found: Sequence[int | None]) -> int:
    """Return the start of the batch, from the first of its messages that exists."""
    return next(tick - index for index, tick in enumerate(found) if tick is not None)


def _orders(history: History, ticks: Mapping[str, int]) -> Iterator[Anomaly]:
    """Judge sequential sends: each producer's appends, and appends acknowledged before."""
    placed: list[tuple[Append, int]] = []
    last_of: dict[str, tuple[int, int]] = {}
    for append in history.appends:
        found = [tick for value in append.values() if (tick := ticks.get(value)) is not None]
        if not found:
            continue
        placed.append((append, found[0]))
        previous, previous_tick = last_of.get(append.producer, (0, 0))
        if found[0] <= previous_tick:
            text = f"{append.producer}:{append.first} at {found[0]}, {append.producer}:{previous} at {previous_tick}"
            yield Anomaly(Kind.SEND_ORDER, text)
        last_of[append.producer] = (append.first, found[-1])
    yield from _real_time(placed)


def _real_time(placed: Sequence[tuple[Append, int]]) -> Iterator[Anomaly]:
    """Judge appends that began after others had been acknowledged. Ticks of a node come from one oracle."""
    ended = sorted((append.end_ns, tick) for append, tick in placed if append.end_ns is not None)
    greatest = list(accumulate((tick for _, tick in ended), max))
    for append, tick in placed:
        before = bisect_left(ended, (append.begin_ns, 0))
        if before and tick <= greatest[before - 1]:
            text = f"{append.producer}:{append.first} at {tick}, an earlier ack at {greatest[before - 1]}"
            yield Anomaly(Kind.REAL_TIME_ORDER, text)
