"""Typed messages: numbers, bodies, dispatchers, and division of packs. Method: the pure parts, value by value."""

import copy
import pickle
from dataclasses import dataclass, replace

import pytest

import tidelog
from tidelog import msgstream
from tidelog.msgstream import (
    CollectionMsg,
    DeleteMsg,
    GeneralMsg,
    InsertMsg,
    MalformedMessageError,
    MemUDFactory,
    MsgPack,
    MsgPosition,
    MsgType,
    ProtoUDFactory,
    RepackError,
    StreamSettings,
    TimeTickMsg,
    TsMsg,
    UnknownMsgTypeError,
    UnmarshalDispatcherFactory,
    class_of_type,
    compute_produce_channel_indexes,
    msg_type_of,
)
from tidelog.msgstream._field_copier import copier
from tidelog.msgstream._position import PositionSource
from tidelog.msgstream._repack import checked_packs, default_repack
from tidelog.v1.channel_service_pb2 import RetentionChange

# The numbers of both documents; where they differ, both numbers.
NEWER = {
    "Undefined": 0, "CreateCollection": 100, "DropCollection": 101, "HasCollection": 102, "DescribeCollection": 103,
    "ShowCollections": 104, "GetSystemConfigs": 105, "LoadCollection": 106, "ReleaseCollection": 107,
    "CreateAlias": 108, "DropAlias": 109, "AlterAlias": 110, "CreatePartition": 200, "DropPartition": 201,
    "HasPartition": 202, "DescribePartition": 203, "ShowPartitions": 204, "LoadPartitions": 205,
    "ReleasePartitions": 206, "ShowSegments": 250, "DescribeSegment": 251, "LoadSegments": 252, "ReleaseSegments": 253,
    "HandoffSegments": 254, "LoadBalanceSegments": 255, "CreateIndex": 300, "DescribeIndex": 301, "DropIndex": 302,
    "Insert": 400, "Delete": 401, "Flush": 402, "Search": 500, "SearchResult": 501, "GetIndexState": 502,
    "GetIndexBuildProgress": 503, "GetCollectionStatistics": 504, "GetPartitionStatistics": 505, "Retrieve": 506,
    "RetrieveResult": 507, "WatchDmChannels": 508, "RemoveDmChannels": 509, "WatchQueryChannels": 510,
    "RemoveQueryChannels": 511, "SegmentInfo": 600, "TimeTick": 1200, "QueryNodeStats": 1201, "LoadIndex": 1202,
    "RequestID": 1203, "RequestTSO": 1204, "AllocateSegment": 1205, "SegmentStatistics": 1206,
    "SegmentFlushDone": 1207, "DataNodeTt": 1208,
}  # fmt: skip
OLDER = {
    "kInsert": 400, "kDelete": 401, "kSearch": 500, "KSearchResult": 1000, "kSegStatistics": 1100, "kTimeTick": 1200,
    "kTimeSync": 1201,
}  # fmt: skip
DISPATCHERS = [ProtoUDFactory(), MemUDFactory()]


def test_every_name_of_both_documents_is_a_type_with_its_number() -> None:
    names = {**{f"MsgType_{name}": number for name, number in NEWER.items()}, **OLDER}

    assert {name: int(kind) for name, kind in msgstream.SEED_NAMES.items()} == names
    assert {int(kind) for kind in MsgType} == set(names.values())
    assert MsgType["TIME_SYNC"] is MsgType(1201)


def test_a_type_is_found_by_any_of_its_names() -> None:
    assert msg_type_of("MsgType_Undefined") == msg_type_of("UNDEFINED") == 0
    assert msg_type_of("kTimeSync") == msg_type_of("TIME_SYNC") == 1201
    with pytest.raises(ValueError, match="unknown message type 'Insrt': expected one of UNDEFINED, CREATE"):
        msg_type_of("Insrt")


def test_a_body_says_which_types_it_is_for() -> None:
    with pytest.raises(ValueError, match="CollectionMsg has the type 400, expected one of CREATE_COLLECTION, DROP"):
        CollectionMsg(type=400)
    assert class_of_type(MsgType.REQUEST_ID) is class_of_type(77) is GeneralMsg


def test_a_message_knows_its_size_and_takes_one_time() -> None:
    message = InsertMsg(row_data=[b"x" * 100])
    message.set_ts(7)

    assert (message.begin_ts, message.end_ts) == (7, 7)
    assert 100 < message.size_bytes == len(message.marshal()) < 130


@pytest.mark.parametrize(
    "message", [InsertMsg(hash_keys=[-1]), InsertMsg(id=1 << 63), DeleteMsg(expression="\ud800")]
)  # fmt: skip
def test_a_field_that_cannot_travel_is_told(message: TsMsg) -> None:
    with pytest.raises(MalformedMessageError, match="cannot be sent"):
        message.marshal()


@pytest.mark.parametrize("factory", DISPATCHERS)
def test_an_unknown_type_is_an_error_of_its_own(factory: UnmarshalDispatcherFactory) -> None:
    with pytest.raises(UnknownMsgTypeError, match="no template decodes messages of type 77: expected") as raised:
        factory.new_unmarshal_dispatcher().unmarshal(b"", 77)

    assert (raised.value.msg_type, raised.value.effect) == (77, "none")
    assert isinstance(raised.value, tidelog.TidelogError)


def test_a_template_of_ones_own_makes_messages_of_any_type() -> None:
    dispatcher, other = ProtoUDFactory().new_unmarshal_dispatcher(), ProtoUDFactory().new_unmarshal_dispatcher()
    message = GeneralMsg(type=77, fields={"a": "b"}, body=b"\x00")
    dispatcher.add_msg_template(77, lambda data: GeneralMsg.unmarshal(bytes(data), 77))  # type: ignore[call-overload]  # it gets bytes

    assert dispatcher.unmarshal(message.marshal(), 77) == message
    with pytest.raises(UnknownMsgTypeError):
        other.unmarshal(message.marshal(), 77)


def test_templates_are_checked() -> None:
    dispatcher = ProtoUDFactory().new_unmarshal_dispatcher()
    dispatcher.add_msg_template(1, lambda _: "text")  # type: ignore[arg-type, return-value]  # the point of the test

    with pytest.raises(ValueError, match="the message type is -1"):
        dispatcher.add_msg_template(-1, lambda _: TimeTickMsg())
    with pytest.raises(TypeError, match="unmarshal_func is bytes, expected a function"):
        dispatcher.add_msg_template(1, b"no")  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(MalformedMessageError, match="returned str: expected a TsMsg"):
        dispatcher.unmarshal(b"", 1)


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\xff", "text", None])
def test_a_body_that_is_none_is_told(data: object) -> None:
    with pytest.raises(MalformedMessageError):
        ProtoUDFactory().new_unmarshal_dispatcher().unmarshal(data, MsgType.INSERT)


def test_a_message_in_memory_must_have_its_type_and_comes_out_as_a_copy() -> None:
    dispatcher, message = MemUDFactory().new_unmarshal_dispatcher(), InsertMsg(row_ids=[1])
    copy = dispatcher.unmarshal(message, MsgType.INSERT)
    message.row_ids.append(2)

    assert copy == InsertMsg(row_ids=[1])
    with pytest.raises(MalformedMessageError):
        dispatcher.unmarshal(message, MsgType.DELETE)


class Numbers(PositionSource[int]):
    """Positions whose ids are the digits of a number; counts how many were asked for."""

    asked = 0

    def position_of(self, found: int, time: int) -> MsgPosition:
        self.asked += 1
        return MsgPosition("a", b"%d" % found, "sub", time)


def received(message: InsertMsg, source: Numbers) -> InsertMsg:
    """Return a message as a stream does: decoded, from the place 7 at time 20."""
    decoded = InsertMsg.unmarshal(message.marshal(), MsgType.INSERT)
    decoded.received(source, 7, 20)
    return decoded


def test_a_position_is_made_once_when_it_is_asked_for() -> None:
    source = Numbers()
    message = received(InsertMsg(row_ids=[1], end_ts=30), source)
    assert (source.asked, message.begin_ts, message.end_ts) == (0, 20, 30)

    assert message.position == message.position == MsgPosition("a", b"7", "sub", 20)
    assert source.asked == 1
    message.position = None
    assert message.position is None
    assert InsertMsg.unmarshal(message.marshal(), MsgType.INSERT).position is None


def test_a_received_message_is_copied_with_its_position() -> None:
    expected = MsgPosition("a", b"7", "sub", 20)

    for duplicate in (copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each)), replace):
        original = received(InsertMsg(row_ids=[1]), Numbers())
        found = duplicate(original)
        assert (found, found.position, original.position) == (original, expected, expected)


@dataclass
class Limits:
    """A dataclass with the fields of a protobuf message whose fields can be unset."""

    age_ms: int = 5
    bytes: int | None = None


def test_a_field_that_is_unset_gets_the_default_of_its_class() -> None:
    copy_fields, found = copier(Limits, RetentionChange, ("age_ms", "bytes")), Limits(1, 1)

    copy_fields(RetentionChange(bytes=0), found)

    assert found == Limits(5, 0)


def test_a_class_whose_body_lacks_a_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="Limits has the fields other, which RetentionChange lacks"):
        copier(Limits, RetentionChange, ("age_ms", "other"))


def test_the_key_modulo_the_number_of_channels_is_the_index() -> None:
    assert compute_produce_channel_indexes([InsertMsg(hash_keys=[4, 5]), DeleteMsg()], 3) == [[1, 2], []]
    with pytest.raises(ValueError, match="channel_count is 0, expected at least 1"):
        compute_produce_channel_indexes([], 0)


def test_rows_go_where_their_keys_say_and_other_messages_by_their_first_key() -> None:
    insert = InsertMsg(id=9, row_ids=[1, 2, 3], row_data=[b"a", b"b", b"c"], hash_keys=[0, 1, 2])
    delete = DeleteMsg(row_ids=[7], hash_keys=[1, 0])

    packs = default_repack([insert, delete], [[0, 1, 0], [1, 0]], 2)

    assert packs[0].msgs == [InsertMsg(id=9, row_ids=[1, 3], row_data=[b"a", b"c"], hash_keys=[0, 2])]
    assert packs[1].msgs == [InsertMsg(id=9, row_ids=[2], row_data=[b"b"], hash_keys=[1]), delete]


def test_one_channel_needs_no_keys() -> None:
    messages = [InsertMsg(), TimeTickMsg()]

    assert default_repack(messages, [[], []], 1)[0].msgs == messages


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (DeleteMsg(), "message 0 of the pack, a DeleteMsg, has no hash keys"),
        (InsertMsg(row_ids=[1, 2], hash_keys=[1]), r"InsertMsg, has {'hash_keys': 1, 'row_ids': 2}: expected"),
        (InsertMsg(row_ids=[1], row_data=[b"", b""], hash_keys=[1, 2]), "expected at least one row"),
        (InsertMsg(), "expected at least one row"),
    ],
)
def test_what_cannot_be_divided_is_told(message: TsMsg, text: str) -> None:
    with pytest.raises(RepackError, match=text):
        default_repack([message], [message.hash_keys], 2)


@pytest.mark.parametrize("packs", [None, {2: MsgPack()}, {-1: MsgPack()}, {"a": MsgPack()}, {0: [InsertMsg()]}])
def test_what_a_repack_function_returns_is_checked(packs: object) -> None:
    with pytest.raises(RepackError, match="the repack function"):
        checked_packs(packs, 2)  # type: ignore[arg-type]  # the point of the test


def test_packs_are_equal_by_messages_and_times_wherever_they_were_read() -> None:
    here, there = MsgPosition("a/0", b"1", "one", 5), MsgPosition("a/0", b"2", "two", 5)

    assert MsgPack(1, 2, [InsertMsg(position=here)], [here]) == MsgPack(1, 2, [InsertMsg(position=there)], [there])
    assert MsgPack(1, 2, [InsertMsg(id=1)]) != MsgPack(1, 2, [InsertMsg(id=2)])


@pytest.mark.parametrize(
    "params",
    [
        {"tick_intervall_ms": 200}, {"tick_interval_ms": 9}, {"tick_interval_ms": 60_001}, {"tick_interval_ms": "200"},
        {"tick_interval_ms": True}, {"pursuit_mode": 1}, {"max_message_bytes": 0}, {"max_pack_bytes": 0.5},
    ],
)  # fmt: skip
def test_parameters_are_checked(params: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"expected|at least"):
        StreamSettings().with_params(params)


def test_the_watermark_is_asked_for_twice_in_an_interval_within_what_servers_allow() -> None:
    assert StreamSettings().watermark_interval_s == 0.1
    assert StreamSettings(tick_interval_ms=10).watermark_interval_s == 0.01
