"""Generated logs of batches, and a simple model of how they form packs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tidelog.msgstream import MsgType
from tidelog.msgstream._log.assembler import Grid, PackAssembler, RawPack
from tidelog.tick import LOGICAL_BITS

INTERVAL_MS = 100
GRID = Grid(INTERVAL_MS)
CHANNELS = ("a/0", "a/1", "b/0")
MAX_BYTES = 40
DROP = int(MsgType.DROP_COLLECTION)


@dataclass(frozen=True)
class FakeBatch:
    """A batch as a reader delivers it."""

    vchannel: str
    ticks: Sequence[int]
    payloads: Sequence[bytes]
    types: Sequence[int]
    txn_id: int | None = None

    def part(self, begin: int, end: int) -> "FakeBatch":
        """Return the messages [begin, end) as a batch."""
        cut = slice(begin, end)
        return FakeBatch(self.vchannel, self.ticks[cut], self.payloads[cut], self.types[cut], self.txn_id)


@dataclass(frozen=True)
class Unit:
    """An indivisible part of the log: a batch, the batches of a broadcast, or of transactions that share batches."""

    batches: tuple[FakeBatch, ...]

    @property
    def first_tick(self) -> int:
        """Tick of the first message."""
        return self.batches[0].ticks[0]

    @property
    def last_tick(self) -> int:
        """Tick of the last message."""
        return max(batch.ticks[-1] for batch in self.batches)


@dataclass(frozen=True)
class Found:
    """A pack with messages, without the parts that depend on how far ahead the reader was."""

    begin_tick: int
    end_tick: int
    messages: tuple[tuple[str, int, bytes], ...]


def at(ms: int, logical: int = 0) -> int:
    """Return the tick with this time and counter."""
    return ms << LOGICAL_BITS | logical


def batch(
    channel: str, first_tick: int, payloads: Sequence[bytes], *, txn_id: int | None = None, kind: int = 400
) -> FakeBatch:
    """Return a batch with consecutive ticks and one type."""
    ticks = range(first_tick, first_tick + len(payloads))
    return FakeBatch(channel, ticks, payloads, [kind] * len(payloads), txn_id)


@st.composite
def logs(draw: st.DrawFn) -> list[Unit]:
    """Units in tick order; many of them near the ends of intervals, some across an end."""
    units: list[Unit] = []
    # Not 0: a reader that starts at position 0 reads the ticks above it, and no message has it.
    tick = at(draw(st.integers(0, 300)), 1)
    for number in range(draw(st.integers(0, 12))):
        ms = tick >> LOGICAL_BITS
        near_end = GRID.end_of(tick) - draw(st.integers(0, 3))
        tick = draw(st.sampled_from([tick, tick, at(ms + 1), at(ms + 350), near_end if near_end > tick else tick]))
        unit, tick = draw(_units(tick, 1_000 * (number + 1)))
        units.append(unit)
    return units


@st.composite
def _units(draw: st.DrawFn, tick: int, txn_id: int) -> tuple[Unit, int]:
    kind = draw(st.sampled_from(["plain", "plain", "broadcast", "txn", "shared"]))
    several = draw(st.lists(st.sampled_from(CHANNELS), min_size=1, max_size=3, unique=True))
    if kind == "broadcast":
        one = draw(_payloads(1))
        of_type = draw(_types(1))
        return Unit(tuple(FakeBatch(name, [tick], one, of_type) for name in sorted(several))), tick + 1
    if kind == "plain":
        several = several[:1]
    of_kind: dict[str, list[int | None]] = {"plain": [None], "txn": [txn_id], "shared": [txn_id, txn_id + 1]}
    transactions = of_kind[kind]
    batches = []
    for name in several:
        for each in transactions:
            count = draw(st.integers(1, 4))
            ticks = range(tick, tick + count)
            batches.append(FakeBatch(name, ticks, draw(_payloads(count)), draw(_types(count)), each))
            tick += count
        # Messages of a transaction on channels that are not read.
        tick += draw(st.integers(0, 2)) if kind != "plain" else 0
    return Unit(tuple(batches)), tick + draw(st.integers(0, 1))


def _payloads(count: int) -> st.SearchStrategy[list[bytes]]:
    return st.lists(st.binary(max_size=12), min_size=count, max_size=count)


def _types(count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.sampled_from([400, 400, 400, 401, DROP]), min_size=count, max_size=count)


def expected_packs(units: Sequence[Unit], begin: int = 0) -> list[Found]:
    """Return the packs that have messages, computed simply from the complete log."""
    rows = sorted(
        (tick, each.vchannel, payload, kind)
        for unit in units
        for each in unit.batches
        for tick, payload, kind in zip(each.ticks, each.payloads, each.types, strict=True)
        if tick > begin
    )
    packs = []
    while rows:
        end = GRID.end_of(rows[0][0])
        size_bytes = 0
        for tick, _, payload, kind in rows:
            size_bytes += len(payload)
            if tick <= end and (kind == DROP or size_bytes >= MAX_BYTES):
                end = tick
        end = _behind_transactions(units, end)
        begin = max(begin, GRID.end_before(rows[0][0]))
        packs.append(Found(begin, end, tuple((name, tick, payload) for tick, name, payload, _ in rows if tick <= end)))
        rows = [row for row in rows if row[0] > end]
        begin = end
    return packs


def _behind_transactions(units: Sequence[Unit], end: int) -> int:
    """Return the first tick at or after ``end`` that lies within no transaction."""
    spans: dict[int, list[int]] = {}
    for unit in units:
        for each in unit.batches:
            if each.txn_id is not None:
                spans.setdefault(each.txn_id, []).extend(each.ticks)
    while around := [max(ticks) for ticks in spans.values() if min(ticks) <= end < max(ticks)]:
        end = max(around)
    return end


def assembled(events: Iterable[FakeBatch | int], starts: dict[str, int]) -> list[RawPack]:
    """Return the packs that an assembler makes from batches, and from watermarks between them."""
    assembler = PackAssembler(GRID, starts, MAX_BYTES)
    packs = []
    for event in events:
        if isinstance(event, int):
            assembler.advance(event)
        else:
            assembler.add(event)
        while (pack := assembler.next_pack()) is not None:
            packs.append(pack)
    return packs


def found(packs: Iterable[RawPack]) -> list[Found]:
    """Return those packs that have messages."""
    return [
        Found(
            pack.begin_tick, pack.end_tick, tuple(sorted(_messages(pack), key=lambda message: (message[1], message[0])))
        )
        for pack in packs
        if pack.pieces
    ]


def _messages(pack: RawPack) -> Iterable[tuple[str, int, bytes]]:
    for piece in pack.pieces:
        for index in range(piece.begin, piece.end):
            yield piece.batch.vchannel, piece.batch.ticks[index], piece.batch.payloads[index]
