"""A client without our files decodes an error: google.rpc.Status with ErrorInfo, as libraries of gRPC read it.

Method: grpcio-status and googleapis-common-protos, on a real server, with the metadata limit of our clients.
"""

from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

import tidelog
from tidelog.transport.transport import CHANNEL_OPTIONS
from tidelog.v1 import channel_service_pb2, message_pb2, wal_service_pb2
from tidelog_testing.parts.grpc_calls import running_server


async def status_of(endpoint: str, method: str, request: Any) -> tuple[status_pb2.Status, grpc.aio.AioRpcError]:
    async with grpc.aio.insecure_channel(endpoint, options=CHANNEL_OPTIONS) as channel:
        call: Any = channel.unary_unary(f"/tidelog.v1.{method}")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call(request.SerializeToString())
    error: Any = failed.value
    # As grpc_status.rpc_status.from_call does, which knows synchronous calls only.
    trailing = dict(error.trailing_metadata())
    assert rpc_status.GRPC_DETAILS_METADATA_KEY in trailing
    return status_pb2.Status.FromString(trailing[rpc_status.GRPC_DETAILS_METADATA_KEY]), error


def info_in(status: status_pb2.Status) -> error_details_pb2.ErrorInfo:
    (found,) = (each for each in status.details if each.Is(error_details_pb2.ErrorInfo.DESCRIPTOR))
    info = error_details_pb2.ErrorInfo()
    assert found.Unpack(info)
    return info


async def test_a_refusal_has_the_reason_the_domain_and_the_values() -> None:
    async with running_server() as server:
        append = wal_service_pb2.AppendRequest(vchannel="absent", messages=[message_pb2.Message(payload=b"x")])
        status, error = await status_of(server.grpc_endpoint, "WalService/Append", append)
        info = info_in(status)
        assert (status.code, status.message) == (error.code().value[0], error.details())
        assert (info.reason, info.domain) == ("CHANNEL_NOT_EXIST", "tidelog")
        assert dict(info.metadata) == {"name": "absent", "names": "absent", "effect": "none"}


async def test_an_error_about_a_hundred_long_names_reaches_every_client() -> None:
    names = [f"{number:03}-{'x' * 120}" for number in range(100)]
    async with running_server() as server:
        request = channel_service_pb2.DestroyChannelsRequest(names=names)
        status, error = await status_of(server.grpc_endpoint, "ChannelService/DestroyChannels", request)
        assert error.code() is grpc.StatusCode.NOT_FOUND
        info = info_in(status)
        assert (info.metadata["name"], info.metadata["incomplete"]) == (names[0], "names")
        async with tidelog.AsyncClient(server.grpc_endpoint) as client:
            with pytest.raises(tidelog.ChannelNotFoundError) as refused:
                await client.destroy_channels(names)
            assert refused.value.names == tuple(names[: len(refused.value.names)])
            assert refused.value.values["incomplete"] == "names"
