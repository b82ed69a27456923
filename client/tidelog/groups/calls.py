"""Consumer group calls of the asynchronous client."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from typing import Final, Unpack

from tidelog.errors import GroupAlreadyExistsError, InvalidRequestError, ServerError
from tidelog.groups import types as _wire_group
from tidelog.groups.consumer import AsyncConsumer, ConsumerOptions
from tidelog.groups.types import Consumed, GroupDescription, GroupPosition, GroupSummary
from tidelog.read.channel_patterns import GroupPattern, is_pattern
from tidelog.read.positions import EARLIEST, Positions, Start, positions_of
from tidelog.read.scan import batches_of
from tidelog.tick import Tick
from tidelog.transport.service_calls import ServiceCalls
from tidelog.transport.transport import Connection, Transport
from tidelog.types import PositionCommit
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1 import wal_service_pb2
from tidelog.wire import protocol as _wire
from tidelog.wire.consume_response import consumed_page
from tidelog.wire.durations import Duration, check_seconds
from tidelog.wire.protowire import WireFormatError

_MAX_CONSUME_MESSAGES: Final = 100_000
_MAX_WAIT_S: Final = 60.0
# Time that the answer may take beyond the wait that was requested.
_SLACK_S: Final = 1.0


class AsyncGroupCalls(ServiceCalls):
    """Consumer groups, for ``AsyncClient``."""

    async def create_group(
        self, group: str, channels: str | Iterable[str] = (), *, start: Start = EARLIEST, if_not_exists: bool = False
    ) -> GroupDescription:
        """Create a consumer group, durably, and subscribe it to channels. Returns it without lag.

        From then on retention does not delete unconsumed messages on the vchannels of these channels. With
        authentication on, this holds only for vchannels on which the caller has ``retention.hold`` or
        ``channel.truncate``.

        Args:
            group: Name of the group. The rules are those for channel names, but capital letters are allowed.
            channels: Channels or single vchannels to subscribe to; ``subscribe_group`` adds others later.
            start: Start position on each subscribed vchannel, now and for later subscriptions. ``At.after`` accepts
                only one vchannel, as in ``seek_group``.
            if_not_exists: Accept an existing group, which is not changed but subscribed to missing channels.

        Raises:
            GroupAlreadyExistsError: The group exists. Nothing happened.
            ChannelNotFoundError, PositionTrimmedError, PositionBeyondEndError: A subscription is not possible.
            InvalidRequestError: A name is invalid.
        """
        request = pb.CreateGroupRequest(
            group=group, channels=_names(channels), start=_wire_group.start_policy(start), if_not_exists=if_not_exists
        )
        answer = await self._change(self._services.groups.CreateGroup, request, is_idempotent=if_not_exists)
        return _wire_group.description(answer.group)

    async def destroy_group(self, group: str, *, ignore_missing: bool = False, force: bool = False) -> bool:
        """Delete a group with all of its positions, durably; return whether it existed.

        Raises:
            GroupNotFoundError: The group does not exist, and ``ignore_missing`` is not set. Nothing happened.
            GroupInUseError: The group has members, and ``force`` is not set. Nothing happened.
        """
        request = pb.DestroyGroupRequest(group=group, ignore_missing=ignore_missing, force=force)
        answer = await self._change(self._services.groups.DestroyGroup, request, is_idempotent=ignore_missing)
        return bool(answer.existed)

    async def subscribe_group(
        self, group: str, channels: str | Iterable[str], *, start: Start | None = None
    ) -> GroupDescription:
        """Subscribe a group to channels or vchannels, durably. Returns it without lag.

        The group begins at ``start``; None for the start position that it was created with.

        Raises:
            GroupNotFoundError, ChannelNotFoundError, PositionTrimmedError, PositionBeyondEndError: Nothing happened.
        """
        request = pb.AlterGroupRequest(group=group, subscribe=_names(channels))
        if start is not None:
            request.start.CopyFrom(_wire_group.start_policy(start))
        return await self._alter(request)

    async def unsubscribe_group(self, group: str, channels: str | Iterable[str]) -> GroupDescription:
        """Unsubscribe a group from channels, durably, and delete its positions there. Returns it without lag.

        Raises:
            GroupNotFoundError: The group does not exist. Nothing happened.
            GroupInUseError: Members consume one of the channels. Nothing happened.
        """
        return await self._alter(pb.AlterGroupRequest(group=group, unsubscribe=_names(channels)))

    async def describe_group(self, group: str) -> GroupDescription:
        """Return a group with its positions, lag and members.

        Raises:
            GroupNotFoundError: The group does not exist.
        """
        answer = await self._read(self._services.groups.DescribeGroup, pb.DescribeGroupRequest(group=group))
        return _wire_group.description(answer.group)

    async def list_groups(self, prefix: str = "", *, channel: str = "") -> AsyncIterator[GroupSummary]:
        """Yield groups whose names begin with ``prefix``, or match it as a pattern, in order of name.

        Args:
            prefix: Beginning of the names; or a pattern, if it contains ``*``, ``?`` or ``[``: see ``scan``.
            channel: Channel whose subscribers alone are yielded.

        Raises:
            ValueError: The pattern is invalid.
        """
        pattern = GroupPattern(prefix) if is_pattern(prefix) else None
        request = pb.ListGroupsRequest(prefix=prefix if pattern is None else pattern.prefix, channel=channel)
        async for answer in self._pages(lambda services: services.groups.ListGroups, request):
            for each in answer.groups:
                if pattern is None or pattern.covers(each.name):
                    yield GroupSummary(
                        each.name, Tick(each.created_tick), each.vchannels, each.members, each.committed_time_ms
                    )

    async def commit_positions(self, commits: Iterable[PositionCommit]) -> None:
        """Advance positions of groups, durably and atomically. A commit below the current position changes nothing.

        Raises:
            GroupNotFoundError, GroupNotSubscribedError, ChannelNotFoundError: A position does not exist.
            GroupInUseError: A member holds the vchannel, and the commit has no member id.
            GroupFencedError: The member of the commit no longer holds the vchannel.
            PositionBeyondEndError: A position is beyond the end of the log.
        """
        request = pb.CommitPositionsRequest(positions=map(_wire.position_commit, commits))
        await self._change(self._services.groups.CommitPositions, request, is_idempotent=True)

    async def seek_group(
        self, group: str, to: Start | Positions, vchannels: str | Iterable[str] = ()
    ) -> Mapping[str, GroupPosition]:
        """Set positions of a group, forward or back, durably, all or none; return them by vchannel, without lag.

        Members that hold the vchannels restart there; their commits from before the seek are rejected.

        Args:
            group: Name of the group.
            to: New position: a tick, message id or time, the earliest message, or after the latest. ``At.after`` and
                ``At.after_message_id`` accept only one vchannel, because all copies of a broadcast have one tick. Or
                for each vchannel the tick up to which everything was read, as in ``scan.positions``.
            vchannels: Names of vchannels, or of channels for all their vchannels; empty for all subscribed vchannels,
                or for those of the positions.

        Raises:
            GroupNotFoundError, GroupNotSubscribedError, ChannelNotFoundError: A position does not exist.
            PositionTrimmedError, PositionBeyondEndError: ``to`` was trimmed, or is beyond the end. Nothing happened.
            InvalidRequestError: ``to`` has several positions, and the server is of an earlier version. Nothing
                happened.
            ValueError: ``to`` has no positions, or ``vchannels`` are given too.
        """
        request = pb.SeekGroupRequest(group=group, vchannels=_names(vchannels))
        if isinstance(to, Mapping):
            if request.vchannels:
                raise ValueError("positions and names of vchannels are both given: pass the positions only")
            named = positions_of(to)
            request.vchannels.extend(named)
            request.from_ticks.extend(tick + 1 for tick in named.values())
            # Why: a server of an earlier version reads only this, and refuses it for several vchannels.
            request.to.after_tick = next(iter(named.values()))
        else:
            request.to.CopyFrom(_wire_group.start_policy(to))
        answer = await self._change(self._services.groups.SeekGroup, request, is_idempotent=True)
        return {each.vchannel: _wire_group.group_position(each) for each in answer.positions}

    async def consume(
        self,
        group: str,
        vchannel: str,
        max_messages: int = 1_000,
        *,
        commit: bool = False,
        wait_s: Duration = 0.0,
        max_bytes: int = 0,
        consume_id: int | None = None,
        is_repeated: bool = False,
    ) -> Consumed:
        """Return the next messages of a group on one vchannel; empty if none arrive within ``wait_s``.

        Args:
            group: Name of a group that is subscribed to the vchannel.
            vchannel: Name of a vchannel that no member holds; see ``consumer``.
            max_messages: Maximum number of messages, 1 to 100,000.
            commit: Advance the position past the messages before they are returned, so that no other caller gets them.
                Delivery is then at most once: a crash of this process before it has processed them loses them. Without
                ``commit``, each call returns the same messages until ``commit_positions``: at least once. A retry after
                a lost answer returns the same messages in both modes.
            wait_s: Maximum seconds to wait for a first message, 0 to 60.
            max_bytes: Approximate maximum of encoded bytes, up to 4 MiB; 0 for 1 MiB.
            consume_id: Unique id of a call with ``commit``, 1 to 2^64 - 1: a later call with the same id and the same
                bounds gets the same messages. The upper 40 bits identify a caller, which makes one call at a time and
                increments the rest. The server remembers the last call of each of the last 16 callers of the group on
                the vchannel. None for an id chosen by the client.
            is_repeated: True if a call with this ``consume_id`` may have been made before.

        Raises:
            GroupNotFoundError, GroupNotSubscribedError, ChannelNotFoundError: The position does not exist.
            GroupInUseError: A member holds the vchannel.
            PositionTrimmedError: Unconsumed messages were trimmed. Call ``seek_group`` to continue.
            ConsumeForgottenError: The call is repeated, but the server has evicted its result.
            InvalidRequestError, ValueError: A number is out of range.
        """
        if not 1 <= max_messages <= _MAX_CONSUME_MESSAGES:
            raise InvalidRequestError(
                f"max_messages is {max_messages}, expected 1 to {_MAX_CONSUME_MESSAGES}",
                values={"field": "max_messages"},
            )
        wait_s = check_seconds("wait_s", wait_s, maximum=_MAX_WAIT_S)
        request = pb.ConsumeRequest(
            group=group,
            vchannel=vchannel,
            max_messages=max_messages,
            max_bytes=max_bytes,
            wait_ms=round(wait_s * 1_000),
            mode=pb.CONSUME_MODE_AT_ONCE if commit else pb.CONSUME_MODE_EXPLICIT,
            format=wal_service_pb2.SCAN_FORMAT_COLUMNS,
            is_repeated=commit and is_repeated,
        )
        transport = self._transport()
        with transport.leased() as connection:
            answer = await self._consume(transport, connection, request, consume_id, wait_s)
        name = vchannel if "/" in vchannel else f"{vchannel}/0"
        try:
            page = consumed_page(answer)
            batches = [batch for entry in page.messages.entries for batch in batches_of(name, entry)]
        except WireFormatError as error:
            raise ServerError(
                f"the server's response to a call of consume is malformed ({error}): check proxies between client and "
                "server"
            ) from error
        return Consumed(batches, Tick(page.next_tick))

    async def _consume(
        self,
        transport: Transport,
        connection: Connection,
        request: pb.ConsumeRequest,
        consume_id: int | None,
        wait_s: float,
    ) -> bytes:
        """Return the serialised response of a call; one that commits has a consume id, so that it can be retried."""
        commit = request.mode == pb.CONSUME_MODE_AT_ONCE
        with transport.consume_ids.one(consume_id) if commit else nullcontext(0) as number:
            request.consume_id = number
            answer: bytes = await transport.call(
                connection.consume, request, timeout_s=self.timeout_s + wait_s + _SLACK_S, is_read=not commit,
                is_idempotent=True,
                # Why: a close must not wait for messages that may never arrive.
                holds_close=commit and not wait_s,
                mark_repeated=_mark_repeated,
            )  # fmt: skip
            return answer

    def consumer(self, group: str, channels: str | Iterable[str], **options: Unpack[ConsumerOptions]) -> AsyncConsumer:
        """Return a consumer: a member of a group, which shares the vchannels of ``channels`` with the other members.

        Use it with ``async with``, which joins the group, and ``async for batch in consumer``. Joining creates the
        group if it does not exist, and subscribes it to missing channels.
        """
        return AsyncConsumer(self._reader_transport(), self._create_if_missing, group, _names(channels), **options)

    def _reader_transport(self) -> Callable[[], Transport]:
        """Return what returns the transport of a consumer, in its event loop."""
        return self._transport

    async def _create_if_missing(self, group: str, channels: list[str], start: Start) -> None:
        # Why not `if_not_exists`: the answer would describe the whole group, for each consumer that starts with it.
        with suppress(GroupAlreadyExistsError):
            await self.create_group(group, channels, start=start)

    async def _alter(self, request: pb.AlterGroupRequest) -> GroupDescription:
        answer = await self._change(self._services.groups.AlterGroup, request, is_idempotent=True)
        return _wire_group.description(answer.group)


def _mark_repeated(request: pb.ConsumeRequest) -> None:
    request.is_repeated = request.consume_id != 0


def _names(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)
