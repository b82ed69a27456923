"""The records of channels have the documented bytes, and invalid records are refused.

Method: the examples of docs/reference/format.md, intact and damaged.
"""

import pytest

from tidelog_server.channels.catalog import ChannelRecord, Owner
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.retention import GroupCut, Retention
from tidelog_server.core.ticks import Tick

PLAIN = (
    ChannelRecord("a", (7,), Owner(), Tick(5)),
    b'{"version":1,"name":"a","vchannel_ids":[7],"owner":{"role":"","address":"","description_text":""},'
    b'"created_tick":5,"is_destroying":false}',
)
BOUNDED = (
    ChannelRecord(
        "b", (8, 9), Owner("r"), Tick(5), retention=Retention(0, 1, 2), cuts=((1, GroupCut(3, 4, Tick(6), ("g",))),)
    ),
    b'{"version":1,"name":"b","vchannel_ids":[8,9],"owner":{"role":"r","address":"","description_text":""},'
    b'"created_tick":5,"is_destroying":false,"retention":{"age_ms":0,"bytes":1,"hard_bytes":2},'
    b'"cuts":[[1,{"messages":3,"bytes":4,"until_tick":6,"groups":["g"]}]]}',
)


@pytest.mark.parametrize(("record", "stored"), [PLAIN, BOUNDED])
def test_a_record_is_stored_as_documented(record: ChannelRecord, stored: bytes) -> None:
    assert record.encode() == stored
    assert ChannelRecord.decode("key", stored) == record


@pytest.mark.parametrize(
    ("part", "other"),
    [
        (b'"version":1', b'"version":2'),
        (b'"hard_bytes":2', b'"harder":2'),
        (b"[[1,{", b"[[{"),
        (b'"groups"', b'"troops"'),
    ],
)
def test_a_damaged_or_unknown_record_is_refused(part: bytes, other: bytes) -> None:
    with pytest.raises(DataLossError):
        ChannelRecord.decode("key", BOUNDED[1].replace(part, other))


def test_the_last_groups_that_were_cut_past_are_remembered() -> None:
    cut = GroupCut()
    for number in [*range(20), 19, 18]:
        cut = cut.and_then(messages=1, size_bytes=2, until_tick=number, group=f"g{number}")
    assert (cut.messages, cut.bytes, cut.until_tick) == (22, 44, 19)
    assert cut.groups == (*(f"g{number}" for number in range(4, 18)), "g19", "g18")
