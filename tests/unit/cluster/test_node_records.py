"""Registrations in etcd are readable across versions. Method: literal bytes of each version."""

import json

import pytest

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.nodes import NodeRecord

BEFORE_PEER_ADDRESSES = (
    b'{"record":1,"node_id":"n1","address":"a:1","http_address":"a:2","incarnation":"0f","version":"0.1.0"}'
)
RECORD = NodeRecord("n1", "a:1", "a:2", "0f", "0.1.0")


def test_a_record_without_an_address_for_nodes_is_read_and_written_as_before_there_were_any() -> None:
    assert NodeRecord.decode("k", BEFORE_PEER_ADDRESSES) == RECORD
    assert RECORD.encode() == BEFORE_PEER_ADDRESSES
    assert RECORD.address_for_nodes == "a:1"


def test_a_record_keeps_its_address_for_nodes() -> None:
    record = NodeRecord("n1", "a:1", "a:2", "0f", "0.1.0", "b:1")
    assert NodeRecord.decode("k", record.encode()) == record
    assert (record.address, record.address_for_nodes) == ("a:1", "b:1")


def test_fields_of_later_versions_are_ignored() -> None:
    later = {**json.loads(BEFORE_PEER_ADDRESSES), "zone": "x"}
    assert NodeRecord.decode("k", json.dumps(later).encode()) == RECORD


@pytest.mark.parametrize(
    "stored",
    [b"", b"[]", b"{}", BEFORE_PEER_ADDRESSES.replace(b'"record":1', b'"record":2'), b'{"record":1,"node_id":"n1"}'],
)
def test_a_record_that_is_no_registration_is_damage(stored: bytes) -> None:
    with pytest.raises(DataLossError):
        NodeRecord.decode("k", stored)
