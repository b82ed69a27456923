"""Planning of retention: computes cuts from chunks, bounds and pinned ticks. Pure: no I/O, no clock.

The chunks of all vchannels of a channel are visited from the oldest to the newest, by their last messages::

    oldest                                                            newest
    | chunk | chunk | chunk | chunk | chunk | chunk | chunk | chunk | chunk |
    --------------------^-----------------------^------------------------
       expired_tick: all before it        the newest ``bytes`` begin here:
       are older than age_ms              chunks before them may be deleted

A chunk is deleted if it is entirely before one of the two marks and no group holds it. Only a hard cap deletes more:
first chunks that no group holds, then pinned ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog_server.core.retention import Retention
from tidelog_server.core.ticks import NO_TICK, Tick
from tidelog_server.storage.format.codec import ChunkRow
from tidelog_server.storage.log_store import VchannelTail


@dataclass(frozen=True, slots=True)
class VchannelView:
    """The state of a vchannel that retention needs.

    Attributes:
        tail: Tail of the vchannel, read before the chunks.
        chunks: Oldest chunks, as ``LogStore.oldest_chunks`` returns them for ``bytes_over`` of the channel.
        pinned_tick: First tick that not all groups have committed; None without groups.
        reported_tick: Losses below this tick are already persisted, even if a crash prevented the deletion.
    """

    tail: VchannelTail
    chunks: Sequence[ChunkRow]
    pinned_tick: int | None = None
    reported_tick: int = NO_TICK

    @property
    def bytes_left(self) -> int:
        """Bytes of columns that are not trimmed."""
        return self.tail.columns_bytes - self.tail.trimmed_bytes


@dataclass(frozen=True, slots=True)
class TrimCut:
    """A prefix of a vchannel to delete.

    Attributes:
        index: Index of the vchannel in the argument of ``plan_cuts``.
        tick: End of the prefix, exclusive: the tick after the last message of a chunk.
        messages, bytes: Size of the prefix, counted by whole chunks.
        is_past_pin: True if a group holds messages of the prefix.
        lost_messages, lost_bytes: Size of pinned chunks whose loss is not persisted yet.
    """

    index: int
    tick: Tick
    messages: int
    bytes: int
    is_past_pin: bool = False
    lost_messages: int = 0
    lost_bytes: int = 0


class _Piece(NamedTuple):
    """The untrimmed part of a chunk. Sorts by age."""

    last_tick: int
    vchannel: int
    messages: int
    bytes: int
    is_pinned: bool
    is_reported: bool


def bytes_over(retention: Retention, bytes_left: int) -> int:
    """Return by how many bytes a channel of ``bytes_left`` bytes exceeds its smallest bound; 0 without bounds."""
    bounds = [bound for bound in (retention.bytes, retention.hard_bytes) if bound]
    return max(0, bytes_left - min(bounds)) if bounds else 0


def plan_cuts(retention: Retention, vchannels: Sequence[VchannelView], expired_tick: int) -> list[TrimCut]:
    """Return the cut of each vchannel of a channel that has something to delete.

    Messages below ``expired_tick`` are too old; 0 without a bound on age.
    """
    pieces = sorted(piece for index, view in enumerate(vchannels) for piece in _pieces(index, view))
    bytes_left = sum(view.bytes_left for view in vchannels)
    gone, rest = _beyond_bounds(retention, pieces, bytes_left, expired_tick)
    if retention.hard_bytes:
        over_bytes = bytes_left - sum(piece.bytes for piece in gone) - retention.hard_bytes
        gone += _beyond_cap(rest, over_bytes)
    cuts = _cuts(gone)
    for cut in cuts:
        view = vchannels[cut.index]
        assert view.tail.trim_tick < cut.tick
        if cut.is_past_pin:
            assert retention.hard_bytes
        else:
            assert view.pinned_tick is None or cut.tick <= view.pinned_tick
    return cuts


def _pieces(index: int, view: VchannelView) -> Iterator[_Piece]:
    # The tail may be older than the chunks, or a trim may have come in between: clamp chunks to the tail.
    begin_messages, begin_bytes = view.tail.trimmed_messages, view.tail.trimmed_bytes
    for chunk in view.chunks:
        if chunk.last_tick < view.tail.trim_tick:
            continue  # The open chunk stays in the index until it is closed, even if it is trimmed entirely.
        end_messages = max(begin_messages, min(view.tail.messages, chunk.messages_before + chunk.messages))
        end_bytes = max(begin_bytes, min(view.tail.columns_bytes, chunk.bytes_before + chunk.columns_bytes))
        is_pinned = view.pinned_tick is not None and view.pinned_tick <= chunk.last_tick
        yield _Piece(
            chunk.last_tick, index, end_messages - begin_messages, end_bytes - begin_bytes, is_pinned,
            chunk.last_tick < view.reported_tick,
        )  # fmt: skip
        begin_messages, begin_bytes = end_messages, end_bytes


def _beyond_bounds(
    retention: Retention, pieces: Sequence[_Piece], bytes_left: int, expired_tick: int
) -> tuple[list[_Piece], list[_Piece]]:
    """Divide pieces into those to delete (unpinned, and too old or beyond the newest bytes) and the others."""
    gone: list[_Piece] = []
    rest: list[_Piece] = []
    over_bytes = bytes_left - retention.bytes if retention.bytes else 0
    is_over = 0 < over_bytes
    for piece in pieces:
        # A pinned piece counts towards the excess, so that no newer piece is deleted in its place.
        is_over = is_over and piece.bytes <= over_bytes
        over_bytes -= piece.bytes
        goes = (is_over or piece.last_tick < expired_tick) and not piece.is_pinned
        (gone if goes else rest).append(piece)
    return gone, rest


def _beyond_cap(pieces: Sequence[_Piece], over_bytes: int) -> list[_Piece]:
    """Return the pieces that a hard cap deletes to free ``over_bytes``: unpinned pieces first, then pinned ones."""
    gone: list[_Piece] = []
    # The sort is stable: within pinned and unpinned pieces, the oldest come first.
    for piece in sorted(pieces, key=lambda piece: piece.is_pinned):
        if over_bytes <= 0:
            break
        over_bytes -= piece.bytes
        gone.append(piece)
    return gone


def _cuts(gone: Sequence[_Piece]) -> list[TrimCut]:
    by_index: dict[int, list[_Piece]] = {}
    for piece in gone:
        by_index.setdefault(piece.vchannel, []).append(piece)
    return [_cut(index, by_index[index]) for index in sorted(by_index)]


def _cut(index: int, gone: Sequence[_Piece]) -> TrimCut:
    lost = [piece for piece in gone if piece.is_pinned and not piece.is_reported]
    return TrimCut(
        index,
        Tick(max(piece.last_tick for piece in gone) + 1),
        sum(piece.messages for piece in gone),
        sum(piece.bytes for piece in gone),
        any(piece.is_pinned for piece in gone),
        sum(piece.messages for piece in lost),
        sum(piece.bytes for piece in lost),
    )
