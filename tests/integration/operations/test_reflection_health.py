"""A stock gRPC tool can list and call the server, and probes receive the true state.

Method: the standard reflection and health services, as any client would use them.
"""

from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pb2
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tidelog_testing.parts.grpc_calls import connected, running_server
from tidelog_testing.servers.secured import secured_server

Asked = reflection_pb2.ServerReflectionRequest


def stub_of(module: Any, name: str, channel: grpc.aio.Channel) -> Any:
    """Return an asynchronous stub: the types of these services know only the synchronous ones."""
    return getattr(module, name)(channel)


async def test_reflection_lists_the_services_and_describes_them() -> None:
    async with running_server() as server, connected(server) as client:
        stub = stub_of(reflection_pb2_grpc, "ServerReflectionStub", client.channel)
        requests = [
            Asked(list_services=""),
            Asked(file_containing_symbol="tidelog.v1.WalService"),
            Asked(file_containing_symbol="tidelog.v1.Columns"),
            Asked(file_containing_symbol="tidelog.v1.NoSuchThing"),
        ]
        listed, wal, columns, nothing = [answer async for answer in stub.ServerReflectionInfo(iter(requests))]
        assert {service.name for service in listed.list_services_response.service} >= {
            "tidelog.v1.ChannelService", "tidelog.v1.WalService", "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }  # fmt: skip
        files = [
            descriptor_pb2.FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])
            for answer in (wal, columns)
        ]
        assert [file.name for file in files] == ["tidelog/v1/wal_service.proto", "tidelog/v1/message.proto"]
        assert [method.name for method in files[0].service[0].method][3:6] == ["Append", "AppendStream", "Scan"]
        assert files[0].options.go_package == "tidelog/v1;tidelogv1"
        fields = [field for file in files for message in file.message_type for field in message.field]
        assert {field.name: field.json_name for field in fields}["payload_offsets"] == "payloadOffsets"
        assert all(field.json_name for field in fields)
        assert nothing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


async def test_health_is_serving_for_the_server_and_each_service_until_it_stops() -> None:
    async with running_server() as server, connected(server) as client:
        stub = stub_of(health_pb2_grpc, "HealthStub", client.channel)
        for name in ("", "tidelog.v1.ChannelService", "tidelog.v1.WalService"):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        assert server._rpc is not None
        await server._rpc.set_serving(is_serving=False)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()


async def test_channelz_shows_connections_and_calls_if_a_setting_asks_for_it() -> None:
    async with running_server(server__channelz=True) as server, connected(server) as client:
        await client.create("a")
        stub = stub_of(channelz_pb2_grpc, "ChannelzStub", client.channel)
        found = (await stub.GetServers(channelz_pb2.GetServersRequest())).server
        sockets = [
            each
            for number in [server.ref.server_id for server in found]
            for each in (await stub.GetServerSockets(channelz_pb2.GetServerSocketsRequest(server_id=number))).socket_ref
        ]
        # Servers of this process without channelz are not there, so this is the connection of this client.
        (first,) = sockets
        socket = (await stub.GetSocket(channelz_pb2.GetSocketRequest(socket_id=first.socket_id))).socket
        assert socket.data.streams_started >= 1
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await stub.GetSocket(channelz_pb2.GetSocketRequest(socket_id=1 << 40))
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


async def test_channelz_is_off_and_needs_a_permission(tmp_path: Path) -> None:
    async with running_server() as server, connected(server) as client:
        with pytest.raises(grpc.aio.AioRpcError) as off:
            await stub_of(channelz_pb2_grpc, "ChannelzStub", client.channel).GetServers(
                channelz_pb2.GetServersRequest()
            )
        assert off.value.code() is grpc.StatusCode.UNIMPLEMENTED
    async with secured_server(tmp_path, server__channelz=True) as secured:
        tokens = [await secured.token(grant) for grant in ("read:*", "admin.read")]
        async with secured.channel() as channel:
            stub = stub_of(channelz_pb2_grpc, "ChannelzStub", channel)
            codes = []
            for token in ("none", *tokens):
                try:
                    await stub.GetServers(
                        channelz_pb2.GetServersRequest(), metadata=(("authorization", f"Bearer {token}"),)
                    )
                    codes.append(grpc.StatusCode.OK)
                except grpc.aio.AioRpcError as error:
                    codes.append(error.code())
        assert codes == [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.OK]
