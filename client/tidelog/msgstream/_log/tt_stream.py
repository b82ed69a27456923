"""The time-tick variant: one pack per interval of time."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.msgstream._backends.log import Delivered, LogBackend, Place
from tidelog.msgstream._base_stream import StreamTools
from tidelog.msgstream._generated_types import MsgType
from tidelog.msgstream._log.assembler import Grid, PackAssembler, RawPack
from tidelog.msgstream._log.stream import LogStream, tick_of_id
from tidelog.msgstream._messages import TsMsg
from tidelog.msgstream._msg_type import DML_TYPES
from tidelog.msgstream._pack import MsgPack
from tidelog.msgstream._position import MsgPosition
from tidelog.msgstream._pursuit import Pursuit
from tidelog.read.positions import At
from tidelog.tick import LOGICAL_BITS, Tick

# Number of messages decoded before yielding to the event loop: a few milliseconds.
_MESSAGES_PER_TURN: Final = 200


class AsyncTtMsgStream(LogStream):
    """Delivers one pack per interval of time, with the messages of all channels, once the interval is complete.

    Created by a factory. The messages alone determine the packs: all consumers of the same channels with the same
    interval get the same packs, whenever they start. Consecutive empty intervals known at once form one pack; an idle
    stream delivers an empty pack about once per interval. The log's watermarks show when an interval is complete, so
    no ticks are stored, and a channel without messages delays no pack. See ``assembler`` for the ends of packs.
    """

    def __init__(self, backend: LogBackend, tools: StreamTools[int]) -> None:
        super().__init__(backend, tools)
        self._grid = Grid(tools.settings.tick_interval_ms)
        self._assembler: PackAssembler | None = None
        self._pursuit = Pursuit[RawPack]()
        # Complete but not handed out, because its messages could not be decoded yet.
        self._ready: RawPack | None = None
        self._positions: dict[str, MsgPosition] = {}
        # Upper bound of this machine's clock minus the log's, from the watermarks so far.
        self._ahead_ms: int | None = None

    def _reset(self, places: Mapping[str, Place]) -> None:
        starts = {channel: place.after_tick for channel, place in places.items()}
        self._assembler = PackAssembler(self._grid, starts, self.settings.max_pack_bytes)
        self._pursuit = Pursuit(is_on=self.settings.pursuit_mode)
        self._ready = None
        self._positions = {
            channel: MsgPosition(channel, Tick(tick).message_id, self.sub_name, tick)
            for channel, tick in starts.items()
        }

    def _take_batches(self, batches: Sequence[Delivered], watermark: int) -> None:
        assert self._assembler is not None
        for batch in batches:
            self._assembler.add(batch)
        self._assembler.advance(watermark)
        if watermark:
            ahead_ms = _now_ms() - (watermark >> LOGICAL_BITS)
            self._ahead_ms = ahead_ms if self._ahead_ms is None else min(self._ahead_ms, ahead_ms)

    def _has_next(self) -> bool:
        assert self._assembler is not None
        now_ms = _now_ms() - (self._ahead_ms or 0)
        self._ready = self._ready or self._pursuit.next_pack(self._assembler.next_pack, now_ms)
        return self._ready is not None

    async def _take_next(self) -> MsgPack | None:
        raw, reader = self._ready, self._reading.reader
        assert raw is not None
        messages = await self._messages(raw)
        # Another task took it meanwhile, or a seek changed the position.
        if self._ready is not raw or self._reading.reader is not reader:
            return None
        self._ready = None
        assert self._log_reader is not None
        begin, self._positions = self._positions, self._positions_after(raw, self._log_reader.created_ticks)
        self._progress.handed_out(
            {
                channel: Place(At.message_id(position.msg_id), position.timestamp)
                for channel, position in self._positions.items()
            }
        )
        return MsgPack(raw.begin_tick, raw.end_tick, messages, list(begin.values()), list(self._positions.values()))

    async def _messages(self, raw: RawPack) -> list[TsMsg]:
        """Return the messages of a pack; drop repeated inserts and deletes (same channel, id and source)."""
        messages: list[TsMsg] = []
        seen: set[tuple[str, int, int, int]] = set()
        for piece in raw.pieces:
            for index in range(piece.begin, piece.end):
                if piece.batch.types[index] == MsgType.TIME_TICK:
                    # It reports the progress of time, as the pack itself does.
                    continue
                message = self._message(piece.batch, index)
                if message.id and message.type in DML_TYPES:
                    identity = (piece.batch.vchannel, message.source_id, message.id, int(message.type))
                    if identity in seen:
                        continue
                    seen.add(identity)
                messages.append(message)
                if not len(messages) % _MESSAGES_PER_TURN:
                    await asyncio.sleep(0)
        return messages

    def _positions_after(self, raw: RawPack, created_ticks: Mapping[str, int]) -> dict[str, MsgPosition]:
        """Return, per channel, the first message after the pack if it is known, else the tick at which the pack ends.

        A channel that begins after the pack keeps its position, and one that was created after it has its creation: the
        server takes an earlier position for one in a destroyed channel of the same name.
        """
        after = {}
        for channel, position in self._positions.items():
            end_tick = max(raw.end_tick, position.timestamp, created_ticks.get(channel, 0))
            message_id = Tick(raw.next_ticks.get(channel, end_tick)).message_id
            after[channel] = MsgPosition(channel, message_id, self.sub_name, end_tick)
        return after

    def _sought_place(self, position: MsgPosition, latest: Place, *, include_message: bool) -> Place:
        tick = tick_of_id(position, latest.after_tick)
        # Without a timestamp, the id alone determines the place.
        after = position.timestamp or max(0, tick - 1)
        if include_message and position.timestamp:
            return Place(At.tick(min(tick, after)), after - 1)
        return Place(At.tick(tick), after)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
