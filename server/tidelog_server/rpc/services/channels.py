"""ChannelService."""

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.v1 import channel_service_pb2 as pb
from tidelog_server.channels.catalog import Owner
from tidelog_server.channels.directory import Directory
from tidelog_server.channels.lifecycle import ChannelState, Lifecycle
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import (
    MAX_CHANNELS_PER_REQUEST,
    MAX_LIST_PAGE,
    MAX_OWNER_FIELD_BYTES,
    MAX_VCHANNELS_PER_CHANNEL,
)
from tidelog_server.core.names import (
    RESERVED_PREFIX,
    check_channel_name,
    check_existing_channel_name,
    is_readable_system_channel,
)
from tidelog_server.core.retention import KEEP_FOR_EVER, Retention, RetentionChange
from tidelog_server.rpc.context import Context
from tidelog_server.security.access import current_access, current_tenant
from tidelog_server.security.grants import OF_CHANNELS


class ChannelService:
    """Handlers of ChannelService."""

    def __init__(self, lifecycle: Lifecycle, directory: Directory) -> None:
        self._lifecycle = lifecycle
        self._directory = directory

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Return the handler of each method of the service."""
        return {
            "CreateChannels": self.create_channels,
            "AlterChannels": self.alter_channels,
            "DestroyChannels": self.destroy_channels,
            "DescribeChannels": self.describe_channels,
            "ListChannels": self.list_channels,
        }

    async def create_channels(self, request: pb.CreateChannelsRequest, _: Context) -> pb.CreateChannelsResponse:
        """Create channels."""
        if bool(request.names) == bool(request.number):
            raise InvalidRequestError("set either names or a number greater than 0, not both", field="names")
        if request.names:
            _check_names(request.names)
        elif request.number > MAX_CHANNELS_PER_REQUEST:
            raise InvalidRequestError(
                f"number is {request.number}, expected 1 to {MAX_CHANNELS_PER_REQUEST}", field="number"
            )
        vchannels = request.vchannels or 1
        if vchannels > MAX_VCHANNELS_PER_CHANNEL:
            raise InvalidRequestError(
                f"vchannels is {vchannels}, expected 1 to {MAX_VCHANNELS_PER_CHANNEL}", field="vchannels"
            )
        retention = request.retention
        states = await self._lifecycle.create(
            request.names,
            request.number,
            vchannels,
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
        if not changed:
            raise InvalidRequestError("the request changes nothing: set at least one setting", field="retention")
        states = await self._lifecycle.alter(request.names, RetentionChange(**changed))
        return pb.AlterChannelsResponse(channels=map(_description, states))

    async def destroy_channels(self, request: pb.DestroyChannelsRequest, _: Context) -> pb.DestroyChannelsResponse:
        """Destroy channels."""
        _check_names(request.names)
        gone = await self._lifecycle.destroy(request.names, ignore_missing=request.ignore_missing, force=request.force)
        return pb.DestroyChannelsResponse(names=gone)

    async def describe_channels(self, request: pb.DescribeChannelsRequest, _: Context) -> pb.DescribeChannelsResponse:
        """Describe channels."""
        _check_names(request.names, _check_readable)
        for name in request.names:
            self._directory.ownership.check_here(name, name)
        if not request.ignore_missing:
            self._directory.check_exist(request.names)
        missing = self._directory.missing(request.names)
        absent = set(missing)
        return pb.DescribeChannelsResponse(
            channels=[_description(self._lifecycle.describe(name)) for name in request.names if name not in absent],
            missing=missing,
        )

    async def list_channels(self, request: pb.ListChannelsRequest, _: Context) -> pb.ListChannelsResponse:
        """List a page of channels."""
        if request.page_size > MAX_LIST_PAGE:
            raise InvalidRequestError(
                f"page_size is {request.page_size}, expected 1 to {MAX_LIST_PAGE}, or 0", field="page_size"
            )
        # The token is the last name of the previous page, so channels may be created or destroyed between pages.
        size = request.page_size or MAX_LIST_PAGE
        # One more, to find out whether there is another page.
        has_system = request.include_system or request.prefix.startswith(RESERVED_PREFIX)
        names = self._visible(request.prefix, request.page_token, size + 1, has_system=has_system)
        page = names[:size]
        return pb.ListChannelsResponse(
            channels=[_description(self._lifecycle.describe_anywhere(name)) for name in page],
            next_page_token=page[-1] if len(page) < len(names) else "",
        )

    def _visible(self, prefix: str, after: str, limit: int, *, has_system: bool) -> list[str]:
        """Return the next names, at most ``limit``, on which the caller has a permission.

        Those of system channels only with ``has_system``.
        """
        access = current_access()
        found: list[str] = []
        while len(found) < limit and (names := self._directory.names(prefix, after=after, limit=limit)):
            after = names[-1]
            found += [
                name
                for name in names
                if (has_system or not name.startswith(RESERVED_PREFIX))
                and (access is None or access.may(OF_CHANNELS, name))
            ]
        return found[:limit]


def _check_readable(name: str) -> str:
    return name if is_readable_system_channel(name) else check_existing_channel_name(name)


def _check_names(names: Sequence[str], check: Callable[[str], str] = check_channel_name) -> None:
    if not 1 <= len(names) <= MAX_CHANNELS_PER_REQUEST:
        raise InvalidRequestError(
            f"the request names {len(names)} channels, expected 1 to {MAX_CHANNELS_PER_REQUEST}", field="names"
        )
    for name in names:
        check(name)
    if len(set(names)) < len(names):
        raise InvalidRequestError("the request names a channel twice", field="names")


def _owner(owner: pb.OwnerDescription) -> Owner:
    for field in ("role", "address", "description_text"):
        size = len(getattr(owner, field).encode())
        if size > MAX_OWNER_FIELD_BYTES:
            raise InvalidRequestError(
                f"the owner's {field} has {size} bytes, at most {MAX_OWNER_FIELD_BYTES} are allowed", field=field
            )
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
    for index, cut in record.cuts if state.vchannels else ():
        described.vchannels[index].cut.CopyFrom(
            pb.RetentionCut(messages=cut.messages, bytes=cut.bytes, until_tick=cut.until_tick, groups=cut.groups)
        )
    return described
