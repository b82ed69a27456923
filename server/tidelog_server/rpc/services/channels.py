"""ChannelService."""

from collections.abc import Callable, Sequence
from string import ascii_lowercase, digits
from typing import Final

from tidelog.v1 import channel_service_pb2 as pb
from tidelog_server.channels.catalog import Owner
from tidelog_server.channels.changes import ChannelChange
from tidelog_server.channels.directory import Directory
from tidelog_server.channels.lifecycle import ChannelState, Lifecycle
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import (
    MAX_CHANNELS_PER_REQUEST,
    MAX_OWNER_FIELD_BYTES,
    MAX_VCHANNELS_PER_CHANNEL,
)
from tidelog_server.core.message_checks import check_at_most, check_within
from tidelog_server.core.names import (
    RESERVED_PREFIX,
    check_channel_name,
    check_existing_channel_name,
    is_readable_system_channel,
)
from tidelog_server.core.retention import KEEP_FOR_EVER, Retention, RetentionChange
from tidelog_server.core.sorted_names import NamePattern
from tidelog_server.log.node import LogNode
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.lists.looks import Looks
from tidelog_server.rpc.lists.pages import Found, page_of
from tidelog_server.security.access import current_tenant
from tidelog_server.security.grants import OF_CHANNELS, Verb

_READ: Final = frozenset((Verb.READ,))
# The first characters of names that are not reserved.
_NOT_RESERVED: Final = [NamePattern(each, is_prefix=True) for each in digits + ascii_lowercase]


class ChannelService:
    """Handlers of ChannelService."""

    def __init__(self, lifecycle: Lifecycle, directory: Directory, node: LogNode) -> None:
        self._lifecycle = lifecycle
        self._directory = directory
        self._node = node

    async def create_channels(self, request: pb.CreateChannelsRequest, _: Context) -> pb.CreateChannelsResponse:
        """Create channels."""
        if bool(request.names) == bool(request.number):
            raise InvalidRequestError("set either names or a number greater than 0, not both", field="names")
        if request.names:
            _check_names(request.names)
        else:
            check_within(request.number, 1, MAX_CHANNELS_PER_REQUEST, "number")
        if request.vchannels:
            check_within(request.vchannels, 1, MAX_VCHANNELS_PER_CHANNEL, "vchannels")
        retention = request.retention
        states = await self._lifecycle.create(
            request.names,
            request.number,
            request.vchannels or None,
            _owner(request.owner),
            if_not_exists=request.if_not_exists,
            retention=Retention(retention.age_ms, retention.bytes, retention.hard_bytes)
            if request.HasField("retention")
            else KEEP_FOR_EVER,
            tenant=current_tenant(),
        )
        return pb.CreateChannelsResponse(channels=map(_description, states))

    async def alter_channels(self, request: pb.AlterChannelsRequest, _: Context) -> pb.AlterChannelsResponse:
        """Change settings of channels."""
        _check_names(request.names, check_existing_channel_name)
        wire = request.retention
        changed = {field.name: value for field, value in wire.ListFields()}
        if not changed and not request.vchannels:
            raise InvalidRequestError("the request changes nothing: set at least one setting", field="retention")
        check_at_most(request.vchannels, MAX_VCHANNELS_PER_CHANNEL, "vchannels")
        change = ChannelChange(RetentionChange(**changed), request.vchannels)
        states = await self._lifecycle.alter(request.names, change)
        return pb.AlterChannelsResponse(channels=map(_description, states))

    async def destroy_channels(self, request: pb.DestroyChannelsRequest, _: Context) -> pb.DestroyChannelsResponse:
        """Destroy channels."""
        _check_names(request.names)
        gone = await self._lifecycle.destroy(request.names, ignore_missing=request.ignore_missing, force=request.force)
        return pb.DestroyChannelsResponse(names=gone)

    async def describe_channels(
        self, request: pb.DescribeChannelsRequest, context: Context
    ) -> pb.DescribeChannelsResponse:
        """Describe channels."""
        _check_names(request.names, _check_readable)
        self._directory.check_exist(request.names, ignore_missing=request.ignore_missing)
        response, looks = pb.DescribeChannelsResponse(), Looks.of(self._node, context)
        for name in request.names:
            # Looked up here: a channel may be destroyed during a turn.
            if name not in self._directory.logs:
                response.missing.append(name)
                continue
            described = _description(self._lifecycle.describe(name))
            response.channels.append(described)
            await looks.take(1 + len(described.vchannels))
        return response

    async def list_channels(self, request: pb.ListChannelsRequest, context: Context) -> pb.ListChannelsResponse:
        """List a page of channels."""
        has_system = request.include_system or request.prefix.startswith(RESERVED_PREFIX)

        def find(name: str) -> Found[pb.ChannelDescription]:
            if name not in names:
                return None, 0
            described = _description(self._lifecycle.describe_anywhere(name))
            return described, 1 + len(described.vchannels)

        names = self._directory.names
        verbs = _READ if request.only_readable else OF_CHANNELS
        page = await page_of(
            request, names, verbs, find, Looks.of(self._node, context), prefix=request.prefix,
            within=None if has_system else _NOT_RESERVED,
        )  # fmt: skip
        return pb.ListChannelsResponse(channels=page.items, next_page_token=page.next_token)


def _check_readable(name: str) -> str:
    return name if is_readable_system_channel(name) else check_existing_channel_name(name)


def _check_names(names: Sequence[str], check: Callable[[str], str] = check_channel_name) -> None:
    check_within(len(names), 1, MAX_CHANNELS_PER_REQUEST, "names", "the request names {value} channels")
    for name in names:
        check(name)
    if len(set(names)) < len(names):
        raise InvalidRequestError("the request names a channel twice", field="names")


def _owner(owner: pb.OwnerDescription) -> Owner:
    for field in ("role", "address", "description_text"):
        size = len(getattr(owner, field).encode())
        check_at_most(size, MAX_OWNER_FIELD_BYTES, field, "the owner's {field} has {value} bytes")
    return Owner(owner.role, owner.address, owner.description_text)


def _description(state: ChannelState) -> pb.ChannelDescription:
    record = state.record
    owner, retention = record.owner, record.retention
    described = pb.ChannelDescription(
        name=record.name,
        owner=pb.OwnerDescription(role=owner.role, address=owner.address, description_text=owner.description_text),
        created_tick=record.created_tick,
        watermark=state.watermark,
        stopped_by=state.stopped_by,
        node_id=state.owner.node_id,
        address=state.owner.address,
        term=state.owner.term,
        vchannels=[
            pb.VchannelDescription(
                name=vchannel.name,
                trim_tick=vchannel.tail.trim_tick,
                last_tick=vchannel.tail.last_tick,
                fencing_token=vchannel.tail.fencing_token,
                messages=vchannel.tail.messages - vchannel.tail.trimmed_messages,
                bytes=vchannel.tail.columns_bytes - vchannel.tail.trimmed_bytes,
            )
            for vchannel in state.vchannels
        ],
    )
    if retention != KEEP_FOR_EVER:
        described.retention.age_ms = retention.age_ms
        described.retention.bytes = retention.bytes
        described.retention.hard_bytes = retention.hard_bytes
    for growth in record.growths:
        described.growths.add(tick=growth.tick, vchannels=growth.vchannels)
    for index, cut in record.cuts if state.vchannels else ():
        described.vchannels[index].cut.CopyFrom(
            pb.RetentionCut(messages=cut.messages, bytes=cut.bytes, until_tick=cut.until_tick, groups=cut.groups)
        )
    return described
