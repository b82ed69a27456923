"""The log of the blobs of a node. A step of a mailbox that stores bodies has its part here in the same write."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from tidelog_server.blobs.events import BLOBS, decode_chunk
from tidelog_server.blobs.state import BlobState
from tidelog_server.blobs.step import BlobStep
from tidelog_server.core.errors import ShutdownError
from tidelog_server.fold.calls import Call
from tidelog_server.fold.keeping import Keeper
from tidelog_server.fold.log import FoldLog
from tidelog_server.log.node import LogNode

# Chunks that one step copies.
_COPIED: Final = 4
# Bytes of a chunk in the log beyond its data, about.
_CHUNK_BYTES: Final = 48


class BlobLog(FoldLog[BlobState, BlobStep]):
    """The blobs of a node and their log. Lives on the event loop; nothing here blocks."""

    fold = BLOBS

    def begin(self, base: int, _joined_base: int, *, with_time: bool) -> BlobStep:
        """See FoldLog. No other log is written with that of the blobs by its own steps, and no time passes."""
        assert not with_time
        return BlobStep(self.state, base)

    def check_open(self) -> None:
        """See FoldLog. Raises ShutdownError once the channel is closed, with its node."""
        super().check_open()
        if self.place.log.is_closed:
            raise ShutdownError

    async def until_durable(self, tick: int) -> None:
        """Wait until what was submitted at ``tick`` is durable. Raises TidelogServerError if the node stops before."""
        vchannel = self.place.vchannel
        while vchannel.durable_tick < tick:
            durable = asyncio.Event()
            vchannel.followers.add(durable)
            try:
                self.check_open()
                await durable.wait()
            finally:
                vchannel.followers.discard(durable)


ReadPayload = Callable[[BlobLog, int], Awaitable[bytes | None]]
"""Returns the payload of the event at a tick; None if it was trimmed."""


class BlobKeeper(Keeper[BlobLog, int]):
    """Keeps the log of the blobs short. A chunk to copy is given by its tick."""

    # The search takes time for each chunk, and a restore to a tick during the copies needs the places before them.
    _trims_while_copying = False
    # Of a chunk, a replay keeps the place, and a snapshot takes time for each.
    _counts_bytes = False

    def __init__(self, node: LogNode, read: ReadPayload) -> None:
        super().__init__(node)
        self._read = read

    def _items(self, log: BlobLog) -> int:
        return len(log.state.blobs)

    def _used_bytes(self, log: BlobLog) -> int:
        return log.state.stored_bytes + _CHUNK_BYTES * len(log.state.blobs)

    def _oldest_place(self, log: BlobLog, end_tick: int) -> int:
        return log.state.oldest_place(end_tick)

    def _old(self, log: BlobLog, end_tick: int) -> Iterator[Sequence[int]]:
        old = sorted(place for blob in log.state.blobs.values() for place in blob.places if 0 < place < end_tick)
        return (old[begin : begin + _COPIED] for begin in range(0, len(old), _COPIED))

    async def _copy(self, log: BlobLog, part: Sequence[int]) -> tuple[int, int]:
        payloads = {tick: payload for tick in part if (payload := await self._read(log, tick)) is not None}
        chunks = [(tick, decode_chunk(payload)) for tick, payload in payloads.items()]
        size_bytes = sum(map(len, payloads.values()))
        log.state.copied(await log.run(Call(lambda step: step.relocate(chunks), len(chunks), size_bytes)))
        return size_bytes, sum(len(chunk.data) + _CHUNK_BYTES for _, chunk in chunks)
