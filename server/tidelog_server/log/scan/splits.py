"""Divides a range of a vchannel into splits of similar size, from the sparse index. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidelog_server.core.entries import EntryHeader
from tidelog_server.core.ticks import Tick
from tidelog_server.storage.format.codec import ChunkRow


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of consecutive messages that is not divided further.

    Attributes:
        first_tick, last_tick: Both inclusive.
        messages, columns_bytes: Number of messages, and bytes of columns.
    """

    first_tick: int
    last_tick: int
    messages: int
    columns_bytes: int


@dataclass(frozen=True, slots=True)
class Split:
    """A range ``[begin_tick, end_tick)`` of a vchannel, with its approximate content."""

    begin_tick: Tick
    end_tick: Tick
    messages: int
    columns_bytes: int


@dataclass(frozen=True, slots=True)
class SplitBounds:
    """Maximum size of a split; each has at least one extent even if it exceeds this."""

    max_messages: int
    max_bytes: int

    def are_exceeded_by(self, messages: int, columns_bytes: int) -> bool:
        """Return whether a split of this size is too large."""
        return messages > self.max_messages or columns_bytes > self.max_bytes


def extents_of_chunks(chunks: Iterable[ChunkRow]) -> list[Extent]:
    """Return one extent for each chunk."""
    return [Extent(chunk.first_tick, chunk.last_tick, chunk.messages, chunk.columns_bytes) for chunk in chunks]


def extents_of_headers(headers: Iterable[EntryHeader], max_messages: int | None = None) -> Iterator[Extent]:
    """Yield one extent for each entry, or several of at most ``max_messages`` where an entry has more."""
    for header in headers:
        most = max_messages or header.count
        for begin in range(0, header.count, most):
            count = min(most, header.count - begin)
            first_tick = header.base_tick + begin
            size_bytes = header.columns_bytes * count // header.count
            yield Extent(first_tick, first_tick + count - 1, count, size_bytes)


def merged(extents: Sequence[Extent]) -> list[Extent]:
    """Merge consecutive extents into one; an empty list if there are no extents."""
    if not extents:
        return []
    messages = sum(extent.messages for extent in extents)
    size_bytes = sum(extent.columns_bytes for extent in extents)
    return [Extent(extents[0].first_tick, extents[-1].last_tick, messages, size_bytes)]


def clip(extents: Iterable[Extent], begin_tick: int, end_tick: int) -> Iterator[Extent]:
    """Yield the parts of ``extents`` within ``[begin_tick, end_tick)``, with sizes in proportion to ticks.

    For a single entry, the number of messages is exact: they have consecutive ticks.
    """
    for extent in extents:
        first_tick, last_tick = max(extent.first_tick, begin_tick), min(extent.last_tick, end_tick - 1)
        if first_tick > last_tick:
            continue
        whole = extent.last_tick - extent.first_tick + 1
        part = last_tick - first_tick + 1
        # Rounded up: a part that may have messages is never reported as empty.
        messages = -(-extent.messages * part // whole)
        size_bytes = -(-extent.columns_bytes * part // whole)
        yield Extent(first_tick, last_tick, messages, size_bytes)


def join(extents: Iterable[Extent], bounds: SplitBounds) -> Iterator[Split]:
    """Yield splits that cover ``extents`` in order, each as large as the bounds allow."""
    run: list[Extent] = []
    messages = columns_bytes = 0
    for extent in extents:
        grown = messages + extent.messages, columns_bytes + extent.columns_bytes
        if run and bounds.are_exceeded_by(*grown):
            yield _split(run, messages, columns_bytes)
            run, grown = [], (extent.messages, extent.columns_bytes)
        run.append(extent)
        messages, columns_bytes = grown
    if run:
        yield _split(run, messages, columns_bytes)


def _split(run: Sequence[Extent], messages: int, columns_bytes: int) -> Split:
    return Split(Tick(run[0].first_tick), Tick(run[-1].last_tick + 1), messages, columns_bytes)
