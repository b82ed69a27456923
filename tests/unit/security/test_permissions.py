"""No method is open by accident: a method without a row, or a row without a method, does not start the server."""

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto, MethodDescriptorProto, ServiceDescriptorProto

from tidelog.v1 import channel_service_pb2, wal_service_pb2
from tidelog_server.security.permissions import ROWS, PermissionTableError, check_table

SERVICES = [
    channel_service_pb2.DESCRIPTOR.services_by_name["ChannelService"],
    wal_service_pb2.DESCRIPTOR.services_by_name["WalService"],
]
OF_THEM = {name for name in ROWS if name.startswith(("tidelog.v1.ChannelService/", "tidelog.v1.WalService/"))}


def test_the_table_fits_the_services() -> None:
    check_table(SERVICES, OF_THEM)


def test_a_method_without_a_row_is_told() -> None:
    with pytest.raises(PermissionTableError, match=r"without a row.*WalService/Trim"):
        check_table(SERVICES, OF_THEM - {"tidelog.v1.WalService/Trim"})


def test_a_row_without_a_method_is_told() -> None:
    with pytest.raises(PermissionTableError, match=r"without a method: tidelog.v1.WalService/Gone"):
        check_table(SERVICES, OF_THEM | {"tidelog.v1.WalService/Gone"})


def test_a_new_service_cannot_be_forgotten() -> None:
    pool = descriptor_pool.DescriptorPool()
    file = FileDescriptorProto(name="new.proto", package="tidelog.v1", syntax="proto3")
    file.message_type.add(name="Nothing")
    method = MethodDescriptorProto(name="Do", input_type=".tidelog.v1.Nothing", output_type=".tidelog.v1.Nothing")
    file.service.append(ServiceDescriptorProto(name="NewService", method=[method]))
    pool.AddSerializedFile(file.SerializeToString())
    with pytest.raises(PermissionTableError, match="NewService/Do"):
        check_table([*SERVICES, pool.FindServiceByName("tidelog.v1.NewService")], OF_THEM)


def test_every_row_says_what_it_needs() -> None:
    lax = {
        name
        for name, row in ROWS.items()
        if not (row.is_public or row.somewhere or row.somewhere_any or row.needs or row.any_of)
    }
    # Any caller with valid credentials may call these: lists show only the names that it may see, and ticks belong to
    # no channel. Clients must learn the addresses of nodes; watches report only what the caller may see.
    assert {name.partition("/")[2] for name in lax} == {
        "ListChannels", "ListGroups", "GetWalName", "AllocateTicks", "DescribeCluster", "WatchOwners",
        "ListJournals", "WatchJournals", "ListMailboxes",
    }  # fmt: skip
