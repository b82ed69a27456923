"""The calls of the asynchronous client that are about consumer groups."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import nullcontext
from typing import Final, Unpack

from tidelog import _wire, _wire_group
from tidelog._consumer import AsyncConsumer, ConsumerOptions
from tidelog._errors import GroupNotFoundError, InvalidRequestError
from tidelog._group_types import Consumed, GroupDescription, GroupPosition, GroupSummary
from tidelog._positions import EARLIEST, Start
from tidelog._scan import batches_of
from tidelog._tick import Tick
from tidelog._transport import Connection, Transport
from tidelog._types import PositionCommit
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1 import wal_service_pb2

_MAX_CONSUME_MESSAGES: Final = 100_000
_MAX_WAIT_S: Final = 60.0
# How much later than it was asked to may the server answer.
_SLACK_S: Final = 1.0


class AsyncGroupCalls(ABC):
    """Consumer groups, for ``AsyncClient``.

    Attributes:
        timeout_s: How long a call may take, unless it says otherwise.
    """

    timeout_s: float

    @abstractmethod
    def _transport(self) -> Transport:
        """Return the open connections of this event loop."""

    async def create_group(
        self, group: str, channels: str | Iterable[str] = (), *, start: Start = EARLIEST, if_not_exists: bool = False
    ) -> GroupDescription:
        """Create a consumer group, durably, and subscribe it to channels; return it without lag.

        From then on retention keeps what the group has not consumed on all vchannels of these channels; with
        authentication on, of those on which the caller has ``retention.hold`` or ``channel.truncate``.

        Args:
            group: Its name; names are as those of channels, and may have capital letters.
            channels: What it is subscribed to, channels or single vchannels; more may follow.
            start: Where it begins on what it is subscribed to, now and later. ``At.after`` takes one vchannel, as in
                ``seek_group``.
            if_not_exists: Leaves a group that exists as it is, but for channels that it is not subscribed to yet.

        Raises:
            GroupAlreadyExistsError: It exists. Nothing happened.
            ChannelNotFoundError, PositionTrimmedError, PositionBeyondEndError: It cannot be subscribed.
            InvalidRequestError: A name is not allowed.
        """
        transport = self._transport()
        request = pb.CreateGroupRequest(
            group=group, channels=_names(channels), start=_wire_group.start_policy(start), if_not_exists=if_not_exists
        )
        answer = await transport.call(
            transport.groups.CreateGroup, request, timeout_s=self.timeout_s, is_read=False,
            is_idempotent=if_not_exists,
        )  # fmt: skip
        return _wire_group.description(answer.group)

    async def destroy_group(self, group: str, *, ignore_missing: bool = False, force: bool = False) -> bool:
        """Remove a group with all of its positions, durably; return whether there was one.

        Raises:
            GroupNotFoundError: There is none, and ``ignore_missing`` is not set. Nothing happened.
            GroupInUseError: It has members, and ``force`` is not set. Nothing happened.
        """
        transport = self._transport()
        request = pb.DestroyGroupRequest(group=group, ignore_missing=ignore_missing, force=force)
        answer = await transport.call(
            transport.groups.DestroyGroup, request, timeout_s=self.timeout_s, is_read=False,
            is_idempotent=ignore_missing,
        )  # fmt: skip
        return bool(answer.existed)

    async def subscribe_group(
        self, group: str, channels: str | Iterable[str], *, start: Start | None = None
    ) -> GroupDescription:
        """Subscribe a group to channels or vchannels, durably, at ``start`` or where it begins by itself.

        Returns it without lag.

        Raises:
            GroupNotFoundError, ChannelNotFoundError, PositionTrimmedError, PositionBeyondEndError: Nothing happened.
        """
        request = pb.AlterGroupRequest(group=group, subscribe=_names(channels))
        if start is not None:
            request.start.CopyFrom(_wire_group.start_policy(start))
        return await self._alter(request)

    async def unsubscribe_group(self, group: str, channels: str | Iterable[str]) -> GroupDescription:
        """End a group's subscriptions to channels, durably, and forget its positions there; return it without lag.

        Raises:
            GroupNotFoundError: There is no such group. Nothing happened.
            GroupInUseError: Members consume one of them. Nothing happened.
        """
        return await self._alter(pb.AlterGroupRequest(group=group, unsubscribe=_names(channels)))

    async def describe_group(self, group: str) -> GroupDescription:
        """Return a group: where it is, how far behind, and who its members are.

        Raises:
            GroupNotFoundError: There is none.
        """
        transport = self._transport()
        answer = await transport.call(
            transport.groups.DescribeGroup, pb.DescribeGroupRequest(group=group), timeout_s=self.timeout_s, is_read=True
        )
        return _wire_group.description(answer.group)

    async def list_groups(self, prefix: str = "", *, channel: str = "") -> AsyncIterator[GroupSummary]:
        """Yield the groups whose names begin with ``prefix``, in order of name; with ``channel``, its subscribers."""
        page_token = ""
        while True:
            transport = self._transport()
            request = pb.ListGroupsRequest(prefix=prefix, channel=channel, page_token=page_token)
            answer = await transport.call(transport.groups.ListGroups, request, timeout_s=self.timeout_s, is_read=True)
            for summary in answer.groups:
                yield _wire_group.summary(summary)
            page_token = answer.next_page_token
            if not page_token:
                return

    async def commit_positions(self, commits: Iterable[PositionCommit]) -> None:
        """Move positions of groups forward, durably, all or none. One that would go back stays where it is.

        Raises:
            GroupNotFoundError, GroupNotSubscribedError, ChannelNotFoundError: There is no such position.
            GroupInUseError: The vchannel is a member's, and the commit names none.
            GroupFencedError: The vchannel is not that member's any more.
            PositionBeyondEndError: It lies past the end.
        """
        transport = self._transport()
        request = pb.CommitPositionsRequest(positions=map(_wire.position_commit, commits))
        await transport.call(
            transport.groups.CommitPositions, request, timeout_s=self.timeout_s, is_read=False, is_idempotent=True
        )

    async def seek_group(
        self, group: str, to: Start, vchannels: str | Iterable[str] = ()
    ) -> Mapping[str, GroupPosition]:
        """Set positions of a group, forward or back, durably; return them by vchannel, without lag.

        Members that hold the vchannels begin anew there, and what they commit of before is refused.

        Args:
            group: The group.
            to: By tick, message id or time, at the earliest or after the latest message. ``At.after`` and
                ``At.after_message_id`` take one vchannel, for the copies of a broadcast have the same tick.
            vchannels: Names of vchannels, or of channels for all of theirs; none for all that it is subscribed to.

        Raises:
            GroupNotFoundError, GroupNotSubscribedError, ChannelNotFoundError: There is no such position.
            PositionTrimmedError, PositionBeyondEndError: It is not there. Nothing happened.
        """
        transport = self._transport()
        request = pb.SeekGroupRequest(group=group, vchannels=_names(vchannels), to=_wire_group.start_policy(to))
        answer = await transport.call(
            transport.groups.SeekGroup, request, timeout_s=self.timeout_s, is_read=False, is_idempotent=True
        )
        return {each.vchannel: _wire_group.group_position(each) for each in answer.positions}

    async def consume(
        self,
        group: str,
        vchannel: str,
        max_messages: int = 1_000,
        *,
        commit: bool = False,
        wait_s: float = 0.0,
        max_bytes: int = 0,
        consume_id: int | None = None,
        is_repeated: bool = False,
    ) -> Consumed:
        """Return the next messages of a group on one vchannel: at most so many, none if there are none.

        Args:
            group: The group, which is subscribed to the vchannel.
            vchannel: The vchannel; no member may hold it, see ``consumer``.
            max_messages: 1 to 100,000.
            commit: Whether the position moves behind the messages before they come, so that nobody else gets them:
                at most once, should this process end before it has processed them. Otherwise they come again until
                ``commit_positions``: at least once. A call without an answer is repeated, and gets the same messages.
            wait_s: How long to wait for a first message, up to 60.
            max_bytes: About how many bytes of columns at most, up to 4 MiB; 0 for 1 MiB.
            consume_id: Names a call with ``commit``: a later one with the same number and the same bounds gets the same
                messages. Any number that nobody else has, 1 to 2^64 - 1; its upper 40 bits name a caller, who makes one
                call after the other and counts up: the server remembers the last call of each of the last 16 callers of
                the group on the vchannel. None for a number of the client's own.
            is_repeated: Whether a call with this ``consume_id`` may have been made before.

        Raises:
            GroupNotFoundError, GroupNotSubscribedError, ChannelNotFoundError: There is no such position.
            GroupInUseError: A member holds the vchannel.
            PositionTrimmedError: Messages that were not consumed are gone: ``seek_group`` to go on.
            ConsumeForgottenError: The call is repeated, and the server has forgotten it.
            InvalidRequestError, ValueError: A number is out of range.
        """
        if not 1 <= max_messages <= _MAX_CONSUME_MESSAGES:
            raise InvalidRequestError(
                f"max_messages is {max_messages}, expected 1 to {_MAX_CONSUME_MESSAGES}",
                values={"field": "max_messages"},
            )
        if not 0 <= wait_s <= _MAX_WAIT_S:
            raise ValueError(f"wait_s is {wait_s}, expected 0 to {_MAX_WAIT_S:.0f}")
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
        connection = transport.lease()
        try:
            answer = await self._consume(transport, connection, request, consume_id, wait_s)
        finally:
            transport.release(connection)
        name = vchannel if "/" in vchannel else f"{vchannel}/0"
        page = _wire.scan_page(answer.messages.SerializeToString())
        batches = [batch for entry in page.entries for batch in batches_of(name, entry)]
        return Consumed(batches, Tick(answer.next_tick))

    async def _consume(
        self,
        transport: Transport,
        connection: Connection,
        request: pb.ConsumeRequest,
        consume_id: int | None,
        wait_s: float,
    ) -> pb.ConsumeResponse:
        """Make a call; one that moves the position has a number, so that it may be repeated."""
        commit = request.mode == pb.CONSUME_MODE_AT_ONCE
        with transport.consume_ids.one(consume_id) if commit else nullcontext(0) as number:
            request.consume_id = number
            answer: pb.ConsumeResponse = await transport.call(
                connection.groups.Consume, request, timeout_s=self.timeout_s + wait_s + _SLACK_S, is_read=not commit,
                is_idempotent=True,
                # A close does not wait for messages that may never come.
                holds_close=commit and not wait_s,
                mark_repeated=_mark_repeated,
            )  # fmt: skip
            return answer

    def consumer(self, group: str, channels: str | Iterable[str], **options: Unpack[ConsumerOptions]) -> AsyncConsumer:
        """Return a consumer: a member of a group that shares the vchannels of channels with the other members.

        Use it with ``async with``, which joins the group, and ``async for batch in consumer``. The group is made if it
        does not exist, and subscribed to channels that it is not yet.
        """
        return AsyncConsumer(self._transport, self._ensure_group, group, _names(channels), **options)

    async def _ensure_group(self, group: str, channels: list[str], start: Start) -> None:
        try:
            await self.subscribe_group(group, channels)
        except GroupNotFoundError:
            await self.create_group(group, channels, start=start, if_not_exists=True)

    async def _alter(self, request: pb.AlterGroupRequest) -> GroupDescription:
        transport = self._transport()
        answer = await transport.call(
            transport.groups.AlterGroup, request, timeout_s=self.timeout_s, is_read=False, is_idempotent=True
        )
        return _wire_group.description(answer.group)


def _mark_repeated(request: pb.ConsumeRequest) -> None:
    request.is_repeated = request.consume_id != 0


def _names(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)
