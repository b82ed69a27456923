"""GroupService.Consume: the next messages of a group on one vchannel."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from tidelog.v1 import group_service_pb2 as pb
from tidelog.wire.consume_response import consume_response
from tidelog_server.channels.directory import Directory
from tidelog_server.channels.vchannels import Vchannels
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.errors.forgotten import ConsumeForgottenError
from tidelog_server.core.groups import GroupKey, GroupPosition
from tidelog_server.core.limits import DEFAULT_RESPONSE_BYTES, MAX_RESPONSE_BYTES
from tidelog_server.core.ticks import NO_TICK, Tick
from tidelog_server.groups.groups import Groups
from tidelog_server.log.channel_log import ChannelLog, VchannelLog
from tidelog_server.log.node import LogNode
from tidelog_server.log.scan.positions import check_not_trimmed
from tidelog_server.log.scan.scanner import Page, Piece, ScanParameters, ScanSource
from tidelog_server.rpc.columns.pages import ColumnEncoder, Filters, RowEncoder, bounded, wants_rows
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.services.options import longest_wait_s
from tidelog_server.security.access import current_tenant

MAX_CONSUME_MESSAGES: Final = 100_000
MAX_CONSUME_WAIT_MS: Final = 60_000

_WATERMARK_INTERVAL_S: Final = 1.0
# A vchannel without messages has a smaller durable tick.
_FIRST_TICK: Final = NO_TICK + 1


class _Wanted(NamedTuple):
    """A validated request."""

    key: GroupKey
    log: ChannelLog
    vchannel: VchannelLog
    max_messages: int
    max_bytes: int
    wait_s: float
    moves: bool
    consume_id: int
    as_rows: bool


class ConsumeCalls:
    """Handler of Consume."""

    def __init__(self, groups: Groups, directory: Directory, vchannels: Vchannels, node: LogNode) -> None:
        self._groups = groups
        self._directory = directory
        self._vchannels = vchannels
        self._node = node

    async def consume(self, request: pb.ConsumeRequest, context: Context) -> bytes:
        """Return the next messages, serialised, and move the position past them if the mode is AT_ONCE."""
        wanted = self._checked(request, context)
        groups = self._groups
        deadline_s = self._node.shared.clock.monotonic_s() + wanted.wait_s
        while True:
            position = groups.commits.consumable(*wanted.key)
            if wanted.consume_id and (taken := position.taken_by(wanted.consume_id)) is not None:
                # The commit of the first request may not be durable yet.
                await groups.commits.rewrite(wanted.key, position)
                return _response(wanted, await self._read(wanted, taken.begin_tick, taken.end_tick), taken.end_tick)
            if request.is_repeated and wanted.consume_id and position.may_be_forgotten(wanted.consume_id):
                raise ConsumeForgottenError(*wanted.key, consume_id=wanted.consume_id)
            if wanted.consume_id and position.is_overtaken(wanted.consume_id):
                raise InvalidRequestError(
                    f"consume_id {wanted.consume_id} is smaller than an earlier one of the same caller: expected "
                    "increasing ids",
                    field="consume_id",
                )
            pieces = await self._read(wanted, position.next_tick, None)
            if not pieces and await self._has_more(wanted, position, deadline_s):
                continue
            next_tick = pieces[-1].base_tick + pieces[-1].end if pieces else position.next_tick
            if not pieces or not wanted.moves:
                return _response(wanted, pieces, next_tick)
            # Otherwise another consumer of the group received these messages meanwhile: retry from the new position.
            if await groups.commits.consumed(wanted.key, position, next_tick, wanted.consume_id, current_tenant()):
                return _response(wanted, pieces, next_tick)

    def _checked(self, request: pb.ConsumeRequest, context: Context) -> _Wanted:
        self._groups.record(request.group)
        log, vchannel = self._directory.find(request.vchannel)
        if request.mode not in pb.ConsumeMode.values():
            raise InvalidRequestError(f"mode {request.mode} is unknown: use 1 (explicit) or 2 (at once)", field="mode")
        if not request.max_messages:
            raise InvalidRequestError(f"max_messages is 0, expected 1 to {MAX_CONSUME_MESSAGES}", field="max_messages")
        moves = request.mode == pb.CONSUME_MODE_AT_ONCE
        if request.consume_id and not moves:
            raise InvalidRequestError("a consume_id is allowed in the mode AT_ONCE only", field="consume_id")
        wait_ms = bounded(request.wait_ms, 0, 1, MAX_CONSUME_WAIT_MS, "wait_ms")
        return _Wanted(
            GroupKey(request.group, vchannel.name), log, vchannel,
            bounded(request.max_messages, 1, 1, MAX_CONSUME_MESSAGES, "max_messages"),
            bounded(request.max_bytes, DEFAULT_RESPONSE_BYTES, 1, MAX_RESPONSE_BYTES, "max_bytes"),
            min(wait_ms / 1_000, longest_wait_s(context, MAX_CONSUME_WAIT_MS / 1_000)),
            moves, request.consume_id, wants_rows(request.format),
        )  # fmt: skip

    async def _read(self, wanted: _Wanted, begin_tick: int, end_tick: int | None) -> list[Piece]:
        """Return durable messages from ``begin_tick`` on: up to the limits of ``wanted``, or all up to ``end_tick``."""
        wanted.log.check_open()
        check_not_trimmed(wanted.vchannel.name, begin_tick, wanted.vchannel.trim_tick)
        source = ScanSource(0, wanted.log, wanted.vchannel, Tick(begin_tick))
        plan = ScanParameters(
            ends_at_durable=end_tick is None, end_tick=end_tick, message_types=None, max_page_bytes=wanted.max_bytes,
            watermark_interval_s=_WATERMARK_INTERVAL_S, cuts_transactions=True, reads_ahead=False,
        )  # fmt: skip
        taken: list[Piece] = []
        messages = size_bytes = 0
        async with self._vchannels.scanner([source], plan) as scanner:
            async for page in scanner.pages():
                for piece in page.pieces:
                    if messages >= wanted.max_messages or (taken and size_bytes >= wanted.max_bytes):
                        return taken
                    end = min(piece.end, piece.begin + wanted.max_messages - messages)
                    if taken and taken[-1].base_tick == piece.base_tick:
                        # The rest of an entry of which the scan has delivered the beginning first.
                        taken[-1] = replace(taken[-1], end=end)
                    else:
                        taken.append(replace(piece, end=end))
                    messages += end - piece.begin
                    size_bytes += len(piece.columns) * (end - piece.begin) // piece.count
        return taken

    async def _has_more(self, wanted: _Wanted, position: GroupPosition, deadline_s: float) -> bool:
        """Wait until a message at or after the position is durable; return False at the deadline."""
        woken, vchannel = asyncio.Event(), wanted.vchannel
        self._node.watchers.add(woken)
        try:
            while vchannel.durable_tick < max(position.next_tick, _FIRST_TICK):
                wanted.log.check_open()
                self._node.admission.check_storage()
                woken.clear()
                vchannel.followers.add(woken)
                async with asyncio.timeout(deadline_s - self._node.shared.clock.monotonic_s()):
                    await woken.wait()
        except TimeoutError:
            return False
        finally:
            vchannel.followers.discard(woken)
            self._node.watchers.discard(woken)
        return True


def _response(wanted: _Wanted, pieces: Sequence[Piece], next_tick: int) -> bytes:
    names, filters = [wanted.vchannel.name], Filters(())
    encoder = RowEncoder(names, filters, MAX_RESPONSE_BYTES) if wanted.as_rows else ColumnEncoder(names, filters)
    pages = encoder.responses(Page(list(pieces), NO_TICK, is_caught_up=False))
    return consume_response((page for page, _ in pages), next_tick)
