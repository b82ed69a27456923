"""The records of channels have the documented bytes, and invalid records are refused.

Method: the examples of docs/reference/format.md, intact and damaged.
"""

from dataclasses import replace

import pytest

from tidelog_server.channels.catalog import ChannelRecord, Owner
from tidelog_server.channels.changes import Growth
from tidelog_server.channels.contents import Content, ContentKind
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
GROWN = (
    replace(PLAIN[0], vchannel_ids=(7, 11, 12), growths=(Growth(Tick(6), 1), Growth(Tick(9), 2)), is_growing=True),
    b'{"version":1,"name":"a","vchannel_ids":[7,11,12],"owner":{"role":"","address":"","description_text":""},'
    b'"created_tick":5,"is_destroying":false,"growths":[[6,1],[9,2]],"is_growing":true}',
)


@pytest.mark.parametrize(("record", "stored"), [PLAIN, BOUNDED, GROWN])
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
        (b"[[6,1],", b"[[6],"),
    ],
)
def test_a_damaged_or_unknown_record_is_refused(part: bytes, other: bytes) -> None:
    [(_, stored)] = [each for each in (BOUNDED, GROWN) if part in each[1]][:1]
    with pytest.raises(DataLossError):
        ChannelRecord.decode("key", stored.replace(part, other))


def test_vchannels_are_added_behind_the_others() -> None:
    assert PLAIN[0].grown(Tick(6), [11]).grown(Tick(9), [12]) == GROWN[0]
    assert not PLAIN[0].is_growing


def test_the_last_groups_that_were_cut_past_are_remembered() -> None:
    cut = GroupCut()
    for number in [*range(20), 19, 18]:
        cut = cut.and_then(messages=1, size_bytes=2, until_tick=number, group=f"g{number}")
    assert (cut.messages, cut.bytes, cut.until_tick) == (22, 44, 19)
    assert cut.groups == (*(f"g{number}" for number in range(4, 18)), "g19", "g18")


@pytest.mark.parametrize("kind", list(ContentKind))
def test_the_content_of_a_channel_is_the_last_field_of_its_record(kind: ContentKind) -> None:
    plain = ChannelRecord("_x.7", (7,), Owner(), Tick(5))
    record = replace(plain, content=Content(kind, "a/b"))
    assert record.encode() == plain.encode()[:-1] + f',"{kind.value}":"a/b"}}'.encode()
    assert ChannelRecord.decode("k", record.encode()) == record
    assert (record.content_name, record.holds(kind), plain.content_name) == ("a/b", True, "")
    assert not any(each.holds(other) for other in ContentKind for each in (plain, record) if other is not kind)


@pytest.mark.parametrize("more", [',"journal":"a","mailbox":"b"}', ',"content":"a"}'])
def test_a_record_with_several_contents_is_refused(more: str) -> None:
    plain = ChannelRecord("_x.7", (7,), Owner(), Tick(5)).encode()
    with pytest.raises(DataLossError, match="more than one content"):
        ChannelRecord.decode("k", plain[:-1] + more.encode())
