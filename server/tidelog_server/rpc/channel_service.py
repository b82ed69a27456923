"""ChannelService."""

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.v1 import channel_service_pb2 as pb
from tidelog_server.broker.broker import Broker, ChannelState
from tidelog_server.broker.catalog import Owner
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import (
    MAX_CHANNELS_PER_REQUEST,
    MAX_LIST_PAGE,
    MAX_OWNER_FIELD_BYTES,
    MAX_VCHANNELS_PER_CHANNEL,
)
from tidelog_server.core.names import check_channel_name
from tidelog_server.rpc.calls import Context


class ChannelService:
    """Creates, destroys and describes channels."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Return the handler of each method of the service."""
        return {
            "CreateChannels": self.create_channels,
            "DestroyChannels": self.destroy_channels,
            "DescribeChannels": self.describe_channels,
            "ListChannels": self.list_channels,
        }

    async def create_channels(self, request: pb.CreateChannelsRequest, _: Context) -> pb.CreateChannelsResponse:
        """Create channels."""
        if bool(request.names) == bool(request.number):
            raise InvalidRequestError("give either names or a number greater than 0, not both", field="names")
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
        states = await self._broker.create_channels(
            request.names, request.number, vchannels, _owner(request.owner), if_not_exists=request.if_not_exists
        )
        return pb.CreateChannelsResponse(channels=map(_description, states))

    async def destroy_channels(self, request: pb.DestroyChannelsRequest, _: Context) -> pb.DestroyChannelsResponse:
        """Destroy channels."""
        _check_names(request.names)
        gone = await self._broker.destroy_channels(request.names, ignore_missing=request.ignore_missing)
        return pb.DestroyChannelsResponse(names=gone)

    async def describe_channels(self, request: pb.DescribeChannelsRequest, _: Context) -> pb.DescribeChannelsResponse:
        """Describe channels."""
        _check_names(request.names)
        return pb.DescribeChannelsResponse(
            channels=[_description(self._broker.describe(name)) for name in request.names]
        )

    async def list_channels(self, request: pb.ListChannelsRequest, _: Context) -> pb.ListChannelsResponse:
        """List a page of channels."""
        if request.page_size > MAX_LIST_PAGE:
            raise InvalidRequestError(
                f"page_size is {request.page_size}, expected 1 to {MAX_LIST_PAGE}, or 0", field="page_size"
            )
        # The token is the last name of the page before, so channels may come and go between pages.
        names = [name for name in self._broker.names(request.prefix) if name > request.page_token]
        page = names[: request.page_size or MAX_LIST_PAGE]
        return pb.ListChannelsResponse(
            channels=[_description(self._broker.describe(name)) for name in page],
            next_page_token=page[-1] if len(page) < len(names) else "",
        )


def _check_names(names: Sequence[str]) -> None:
    if not 1 <= len(names) <= MAX_CHANNELS_PER_REQUEST:
        raise InvalidRequestError(
            f"the request names {len(names)} channels, expected 1 to {MAX_CHANNELS_PER_REQUEST}", field="names"
        )
    for name in names:
        check_channel_name(name)
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
    owner = state.record.owner
    return pb.ChannelDescription(
        name=state.record.name,
        owner=pb.OwnerDescription(role=owner.role, address=owner.address, description_text=owner.description_text),
        created_tick=state.record.created_tick,
        watermark=state.watermark,
        stopped_by=state.stopped_by,
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
