"""The lag of a position on a vchannel, from the sparse index and the headers of one chunk."""

from typing import Final, NamedTuple

from tidelog_server.core.ticks import MAX_TICK, Tick
from tidelog_server.storage.log_store import LogStore

_PAGE: Final = 1_024


class Lag(NamedTuple):
    """Messages at or above a position that are still in the log.

    Attributes:
        messages: Number of messages.
        size_bytes: Bytes of their columns; proportional for an entry that was consumed in part.
        first_tick: Tick of the oldest message; 0 without messages.
        is_trimmed: True if messages at or above the position were trimmed.
    """

    messages: int
    size_bytes: int
    first_tick: int
    is_trimmed: bool


def lag_of(store: LogStore, vchannel_id: int, next_tick: int) -> Lag:
    """Return the lag at ``next_tick``. Blocks for a read of at most one chunk's headers.

    Raises:
        KeyError: The vchannel does not exist.
        DataLossError: See ``LogStore.headers``.
    """
    tail = store.tail(vchannel_id)
    if tail.last_tick < next_tick:
        return Lag(0, 0, 0, is_trimmed=False)
    is_trimmed = next_tick < tail.trim_tick
    begin_tick = max(next_tick, tail.trim_tick)
    chunks = store.chunks(vchannel_id, begin_tick, MAX_TICK)
    if not chunks:
        # All of it was trimmed.
        return Lag(0, 0, 0, is_trimmed)
    chunk = chunks[0]
    messages = tail.messages - chunk.messages_before
    size_bytes = tail.columns_bytes - chunk.bytes_before
    # In a chunk that was trimmed in part, the trimmed entries come first.
    messages -= max(0, tail.trimmed_messages - chunk.messages_before)
    size_bytes -= max(0, tail.trimmed_bytes - chunk.bytes_before)
    tick = max(chunk.first_tick, tail.trim_tick)
    while headers := store.headers(vchannel_id, tick, chunk.last_tick + 1, _PAGE):
        for header in headers:
            if begin_tick <= header.last_tick:
                consumed = max(0, begin_tick - header.base_tick)
                share = header.columns_bytes * consumed // header.count
                return Lag(messages - consumed, size_bytes - share, max(begin_tick, header.base_tick), is_trimmed)
            messages -= header.count
            size_bytes -= header.columns_bytes
        tick = Tick(headers[-1].last_tick + 1)
    return Lag(messages, size_bytes, begin_tick, is_trimmed)
