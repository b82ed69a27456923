"""GroupService: consumer groups, with their positions and members."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from tidelog.v1 import group_service_pb2 as pb
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import (
    MAX_COMMITS_PER_REQUEST,
    MAX_GROUP_CHANNELS_PER_REQUEST,
)
from tidelog_server.core.message_checks import check_at_most
from tidelog_server.core.names import check_group_name, parse_vchannel_name
from tidelog_server.core.ticks import physical_ms
from tidelog_server.groups.groups import Groups
from tidelog_server.groups.types import GroupState, PositionState
from tidelog_server.log.node import LogNode
from tidelog_server.log.scan.positions import StartFrom
from tidelog_server.rpc.columns.pages import check_tick, start_of
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.lists.looks import Looks
from tidelog_server.rpc.lists.pages import Found, page_of
from tidelog_server.rpc.services.members import MemberCall, subscriber
from tidelog_server.rpc.services.options import commits_of
from tidelog_server.security.grants import OF_GROUPS

# Reading a position that is in memory takes this part of a look.
_POSITIONS_PER_LOOK: Final = 16


class GroupService:
    """Handlers of GroupService."""

    def __init__(self, groups: Groups, node: LogNode) -> None:
        self._groups = groups
        self._node = node

    async def create_group(self, request: pb.CreateGroupRequest, context: Context) -> pb.CreateGroupResponse:
        """Create a group."""
        check_group_name(request.group)
        _check_channels(request.channels)
        start = start_of(request.start, self._node.store.wal_name)
        state = await self._groups.create(
            request.group, request.channels, start, if_not_exists=request.if_not_exists, subscriber=subscriber()
        )
        return pb.CreateGroupResponse(group=await self._description(state, context))

    async def alter_group(self, request: pb.AlterGroupRequest, context: Context) -> pb.AlterGroupResponse:
        """Change subscriptions."""
        check_group_name(request.group)
        _check_channels([*request.subscribe, *request.unsubscribe])
        start = start_of(request.start, self._node.store.wal_name) if request.HasField("start") else None
        state = await self._groups.alter(request.group, request.subscribe, request.unsubscribe, start, subscriber())
        return pb.AlterGroupResponse(group=await self._description(state, context))

    async def destroy_group(self, request: pb.DestroyGroupRequest, _: Context) -> pb.DestroyGroupResponse:
        """Destroy a group."""
        check_group_name(request.group)
        existed = await self._groups.destroy(request.group, ignore_missing=request.ignore_missing, force=request.force)
        return pb.DestroyGroupResponse(existed=existed)

    async def describe_group(self, request: pb.DescribeGroupRequest, context: Context) -> pb.DescribeGroupResponse:
        """Return a group with its lag."""
        check_group_name(request.group)
        state = await self._groups.describe_with_lag(request.group)
        return pb.DescribeGroupResponse(group=await self._description(state, context))

    async def list_groups(self, request: pb.ListGroupsRequest, context: Context) -> pb.ListGroupsResponse:
        """List a page of groups."""

        def find(name: str) -> Found[pb.GroupSummary]:
            taken = len(self._groups.durable.of_group(name)) // _POSITIONS_PER_LOOK
            if name not in self._groups.catalog.records:
                return None, 0
            if request.channel and not self._groups.subscribed(name, request.channel):
                return None, taken
            return self._summary(name), 1 + taken

        looks = Looks.of(self._node, context)
        page = await page_of(request, self._groups.catalog.names, OF_GROUPS, find, looks, prefix=request.prefix)
        return pb.ListGroupsResponse(groups=page.items, next_page_token=page.next_token)

    async def commit_positions(self, request: pb.CommitPositionsRequest, _: Context) -> pb.CommitPositionsResponse:
        """Move positions forward."""
        await self._groups.commits.commit_and_wait(commits_of(request.positions, MAX_COMMITS_PER_REQUEST, at_least=1))
        return pb.CommitPositionsResponse()

    async def seek_group(self, request: pb.SeekGroupRequest, context: Context) -> pb.SeekGroupResponse:
        """Set positions."""
        check_group_name(request.group)
        ticks = _targets_of(request)
        start = start_of(request.to, self._node.store.wal_name)
        starts = [StartFrom(tick) for tick in ticks] if ticks else start
        state = await self._groups.seek(request.group, request.vchannels, starts)
        return pb.SeekGroupResponse(positions=await self._positions(state, Looks.of(self._node, context)))

    async def join_group(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Serve a member."""
        await MemberCall(self._groups, self._node, context).run(requests)

    async def _description(self, state: GroupState, context: Context) -> pb.GroupDescription:
        name, looks = state.record.name, Looks.of(self._node, context)
        described = pb.GroupDescription(name=name, created_tick=state.record.created_tick)
        described.positions.extend(await self._positions(state, looks))
        for member, vchannels, expires_in_s in self._groups.sessions.members(name):
            described.members.add(
                member_id=member.member_id,
                description=member.description,
                channels=sorted(member.channels),
                vchannels=vchannels,
                expires_in_ms=round(expires_in_s * 1_000),
            )
            await looks.take(1 + len(vchannels) // _POSITIONS_PER_LOOK)
        return described

    async def _positions(self, state: GroupState, looks: Looks) -> list[pb.GroupPosition]:
        found = []
        for position in state.positions:
            found.append(self._position(position))
            await looks.take()
        return found

    def _position(self, state: PositionState) -> pb.GroupPosition:
        position, lag = state.position, state.lag
        found = pb.GroupPosition(
            vchannel=state.vchannel,
            next_tick=position.next_tick,
            committed_time_ms=position.committed_ms,
            member_id=state.member_id,
            holds_retention=position.is_pinning,
        )
        if lag is not None:
            now_ms = self._node.shared.clock.wall_ms()
            found.lag_messages, found.lag_bytes, found.is_trimmed = lag.messages, lag.size_bytes, lag.is_trimmed
            found.lag_ms = max(0, now_ms - physical_ms(lag.first_tick)) if lag.messages else 0
        return found

    def _summary(self, name: str) -> pb.GroupSummary:
        positions = self._groups.durable.of_group(name).values()
        return pb.GroupSummary(
            name=name,
            created_tick=self._groups.record(name).created_tick,
            vchannels=len(positions),
            members=self._groups.sessions.count(name),
            committed_time_ms=max((position.committed_ms for position in positions), default=0),
        )


def _targets_of(request: pb.SeekGroupRequest) -> list[int]:
    """Return the targets of single vchannels. Raises InvalidRequestError unless each has one, or none."""
    ticks = [check_tick(tick, "from_ticks") for tick in request.from_ticks]
    full_names = {name for name in request.vchannels if "/" in name}
    if ticks and not len(ticks) == len(full_names) == len(request.vchannels):
        raise InvalidRequestError(
            f"the request has {len(ticks)} targets for {len(request.vchannels)} names, expected one target for each, "
            "and full names of vchannels, none twice",
            field="from_ticks",
        )
    return ticks


def _check_channels(names: Sequence[str]) -> None:
    check_at_most(len(names), MAX_GROUP_CHANNELS_PER_REQUEST, "channels", "the request names {value} channels")
    for name in names:
        parse_vchannel_name(name)
    if len(set(names)) < len(names):
        raise InvalidRequestError("the request names a channel twice", field="channels")
