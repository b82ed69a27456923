"""What retention removes: chunks, bounds and groups in, cuts out. Pure; no I/O and no clock.

The chunks of all vchannels of a channel are walked from the oldest to the newest, by their last messages::

    oldest                                                            newest
    | chunk | chunk | chunk | chunk | chunk | chunk | chunk | chunk | chunk |
    --------------------^-----------------------^------------------------
       expired_tick: all before it        the newest ``bytes`` begin here:
       are older than age_ms              what is before them may go

A chunk goes if it lies wholly before one of the two marks and nobody holds it. Only a hard cap takes more: first what
nobody holds, and what is left to take then is cut past the groups that hold it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog_server.core.retention import Retention
from tidelog_server.core.ticks import NO_TICK, Tick
from tidelog_server.storage.log_store import Chunk, VchannelTail


@dataclass(frozen=True, slots=True)
class VchannelView:
    """A vchannel as retention sees it.

    Attributes:
        tail: Its state, taken before the chunks were read.
        chunks: Its oldest, as ``LogStore.oldest_chunks`` returns them for ``bytes_over`` of the channel.
        held_tick: Messages from here on are not committed by all groups; None if there is no group.
        told_tick: Below it, what was cut past groups is accounted for; a crash may have kept it from going.
    """

    tail: VchannelTail
    chunks: Sequence[Chunk]
    held_tick: int | None = None
    told_tick: int = NO_TICK

    @property
    def bytes_left(self) -> int:
        """Bytes of columns that were not trimmed."""
        return self.tail.columns_bytes - self.tail.trimmed_bytes


@dataclass(frozen=True, slots=True)
class Cut:
    """A prefix of a vchannel that goes.

    Attributes:
        index: Of the vchannel, in the order in which they were given.
        tick: What is smaller goes; the tick after the last message of a chunk.
        messages, bytes: That are in it, counted by whole chunks.
        is_past_hold: Whether a group holds messages of it.
        lost_messages, lost_bytes: Those in chunks that a group holds, if they are not accounted for yet.
    """

    index: int
    tick: Tick
    messages: int
    bytes: int
    is_past_hold: bool = False
    lost_messages: int = 0
    lost_bytes: int = 0


class _Piece(NamedTuple):
    """What is left of a chunk. Sorts by age."""

    last_tick: int
    vchannel: int
    messages: int
    bytes: int
    is_held: bool
    is_told: bool


def bytes_over(retention: Retention, bytes_left: int) -> int:
    """Return how many bytes of a channel, which has ``bytes_left`` in all, lie beyond one of its bounds."""
    bounds = [bound for bound in (retention.bytes, retention.hard_bytes) if bound]
    return max(0, bytes_left - min(bounds)) if bounds else 0


def plan_cuts(retention: Retention, vchannels: Sequence[VchannelView], expired_tick: int) -> list[Cut]:
    """Return what goes of each vchannel of a channel; nothing for those that keep all they have.

    ``expired_tick`` is the moment before which messages are too old; 0 if there is no such moment.
    """
    pieces = sorted(piece for index, view in enumerate(vchannels) for piece in _pieces(index, view))
    bytes_left = sum(view.bytes_left for view in vchannels)
    gone, rest = _beyond_bounds(retention, pieces, bytes_left, expired_tick)
    if retention.hard_bytes:
        over_bytes = bytes_left - sum(piece.bytes for piece in gone) - retention.hard_bytes
        gone += _beyond_cap(rest, over_bytes)
    return _cuts(gone)


def _pieces(index: int, view: VchannelView) -> Iterator[_Piece]:
    # Where the tail is older than the chunks, or a trim came in between, what differs is not counted.
    begin_messages, begin_bytes = view.tail.trimmed_messages, view.tail.trimmed_bytes
    for chunk in view.chunks:
        if chunk.last_tick < view.tail.trim_tick:
            continue  # The open one stays in the index until it is closed, even if all of it was trimmed.
        end_messages = max(begin_messages, min(view.tail.messages, chunk.messages_before + chunk.messages))
        end_bytes = max(begin_bytes, min(view.tail.columns_bytes, chunk.bytes_before + chunk.columns_bytes))
        is_held = view.held_tick is not None and view.held_tick <= chunk.last_tick
        yield _Piece(
            chunk.last_tick, index, end_messages - begin_messages, end_bytes - begin_bytes, is_held,
            chunk.last_tick < view.told_tick,
        )  # fmt: skip
        begin_messages, begin_bytes = end_messages, end_bytes


def _beyond_bounds(
    retention: Retention, pieces: Sequence[_Piece], bytes_left: int, expired_tick: int
) -> tuple[list[_Piece], list[_Piece]]:
    """Divide pieces into those that are too old, or beyond the newest bytes, and not held; and the others."""
    gone: list[_Piece] = []
    rest: list[_Piece] = []
    over_bytes = bytes_left - retention.bytes if retention.bytes else 0
    is_over = 0 < over_bytes
    for piece in pieces:
        # A held piece takes its share of what is beyond, so that nothing newer goes in its place.
        is_over = is_over and piece.bytes <= over_bytes
        over_bytes -= piece.bytes
        goes = (is_over or piece.last_tick < expired_tick) and not piece.is_held
        (gone if goes else rest).append(piece)
    return gone, rest


def _beyond_cap(pieces: Sequence[_Piece], over_bytes: int) -> list[_Piece]:
    """Return the pieces that a hard cap takes to be rid of ``over_bytes``: those that nobody holds come first."""
    gone: list[_Piece] = []
    # Stable: of either kind, the oldest come first.
    for piece in sorted(pieces, key=lambda piece: piece.is_held):
        if over_bytes <= 0:
            break
        over_bytes -= piece.bytes
        gone.append(piece)
    return gone


def _cuts(gone: Sequence[_Piece]) -> list[Cut]:
    by_index: dict[int, list[_Piece]] = {}
    for piece in gone:
        by_index.setdefault(piece.vchannel, []).append(piece)
    return [_cut(index, by_index[index]) for index in sorted(by_index)]


def _cut(index: int, gone: Sequence[_Piece]) -> Cut:
    lost = [piece for piece in gone if piece.is_held and not piece.is_told]
    return Cut(
        index,
        Tick(max(piece.last_tick for piece in gone) + 1),
        sum(piece.messages for piece in gone),
        sum(piece.bytes for piece in gone),
        any(piece.is_held for piece in gone),
        sum(piece.messages for piece in lost),
        sum(piece.bytes for piece in lost),
    )
