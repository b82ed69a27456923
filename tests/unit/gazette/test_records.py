"""The ready-made messages keep their UUID through each framing. Method: frames as literals, and round trips."""

import pickle
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from google.protobuf.wrappers_pb2 import BytesValue, StringValue

from tidelog.gazette import (
    NIL_UUID,
    ByteReader,
    CSVFraming,
    CSVRecord,
    FixedFraming,
    InvalidUUIDError,
    JSONFraming,
    JSONMessage,
    JSONRecord,
    MalformedFrameError,
    Message,
    ProtoRecord,
    frame_decoder,
    parse_uuid,
    uuid_text,
)

TEXT = "83fc2f95-cc5f-11e9-82aa-0123456789ab"
HELD = UUID(TEXT)


@dataclass
class Flight(JSONMessage):
    """A message with declared fields."""

    number: str = field(default="", metadata={"json": "flightNumber"})
    delay: int = 0


def messages() -> list[tuple[Message, object, bytes]]:
    """Return a message of each type with its framing and its frame."""
    flight = Flight("UA 1", 7)
    return [
        (CSVRecord(["", "a,b"]), CSVFraming(), f'{TEXT},"a,b"\n'.encode()),
        (JSONRecord(a=1), JSONFraming(codec="json"), f'{{"a":1,"UUID":"{TEXT}"}}\n'.encode()),
        (flight, JSONFraming(codec="json"), f'{{"UUID":"{TEXT}","flightNumber":"UA 1","delay":7}}\n'.encode()),
        (
            ProtoRecord(BytesValue(), uuid_field="value"),
            FixedFraming(),
            b"\x66\x33\x93\x36\x12\0\0\0\x0a\x10" + HELD.bytes,
        ),
    ]


@pytest.mark.parametrize("place", range(4))
def test_a_message_has_its_uuid_in_its_frame(place: int) -> None:
    message, framing, frame = messages()[place]
    assert isinstance(framing, CSVFraming | JSONFraming | FixedFraming)
    assert message.get_uuid() == NIL_UUID
    message.set_uuid(HELD)
    assert message.get_uuid() == HELD
    assert framing.encode_frame(message) == frame
    read = message.new_acknowledgement("my/journal")
    assert type(read) is type(message)
    assert read.get_uuid() == NIL_UUID
    frame_decoder(framing)(frame, read)
    assert read.get_uuid() == HELD
    assert framing.encode_frame(read) == frame


def test_an_acknowledgement_of_a_record_has_its_number_of_fields() -> None:
    acknowledgement = CSVRecord([TEXT, "a", "b"]).new_acknowledgement("my/journal")
    acknowledgement.set_uuid(HELD)
    assert acknowledgement == [TEXT, "", ""]
    assert CSVFraming().encode_frame(acknowledgement) == f"{TEXT},,\n".encode()


def test_invalid_csv_records_have_the_documented_texts() -> None:
    unmarshal = CSVFraming().new_unmarshal_func(ByteReader(f"not-a-uuid,b\n{TEXT},b\n{TEXT}\n".encode()))
    record = CSVRecord()
    with pytest.raises(InvalidUUIDError, match=r"^invalid UUID length: 10$"):
        unmarshal(record)
    unmarshal(record)
    assert record == [TEXT, "b"]
    with pytest.raises(MalformedFrameError, match=r"^record on line 3: wrong number of fields$"):
        unmarshal(record)
    with pytest.raises(MalformedFrameError, match=r"^fields are empty$"):
        record.unmarshal_csv([])
    with pytest.raises(MalformedFrameError, match=r"^fields are empty$"):
        frame_decoder(CSVFraming())(b"\n", record)
    with pytest.raises(RuntimeError, match="has no place for a UUID"):
        CSVRecord().set_uuid(HELD)
    fields = [TEXT, "x"]
    record.unmarshal_csv(fields)
    fields[1] = "changed"
    assert record == [TEXT, "x"]
    assert record.marshal_csv() is record


def test_an_invalid_uuid_in_json_is_found_when_the_line_is_read() -> None:
    framing = JSONFraming()
    for message in (JSONRecord(), Flight()):
        with pytest.raises(InvalidUUIDError, match="invalid UUID length: 10"):
            framing.decode_frame(b'{"UUID":"not-a-uuid"}\n', message)
        with pytest.raises(InvalidUUIDError, match="the UUID is a int, expected a text"):
            framing.decode_frame(b'{"UUID":7}\n', message)
        with pytest.raises(MalformedFrameError, match="the line has a list, expected an object"):
            framing.decode_frame(b"[]\n", message)


def test_a_json_record_is_a_dictionary() -> None:
    class Own(JSONRecord):
        uuid_field = "_uuid"

    record = Own(a=1)
    record.set_uuid(HELD)
    assert record == {"a": 1, "_uuid": TEXT}
    record["_uuid"] = str(NIL_UUID)
    assert record.get_uuid() == NIL_UUID
    record["_uuid"] = ""
    assert record.get_uuid() == NIL_UUID
    JSONFraming().decode_frame(f'{{"b":2,"_uuid":"{TEXT}"}}\n'.encode(), record)
    assert record == {"b": 2, "_uuid": TEXT}
    assert record.get_uuid() == HELD
    assert pickle.loads(pickle.dumps(JSONRecord(a=1))) == {"a": 1}


def test_a_dataclass_ignores_unknown_fields_and_keeps_absent_ones() -> None:
    flight = Flight("old", 3)
    JSONFraming().decode_frame(f'{{"flightNumber":"new","else":1,"UUID":"{TEXT}"}}\n'.encode(), flight)
    assert flight == Flight("new", 3, uuid=HELD)


def test_a_protobuf_message_needs_a_field_of_bytes() -> None:
    with pytest.raises(ValueError, match="StringValue has no field 'value' of type bytes"):
        ProtoRecord(StringValue(), uuid_field="value")
    with pytest.raises(ValueError, match="has no field 'uuid'"):
        ProtoRecord(BytesValue())
    record = ProtoRecord(BytesValue(), uuid_field="value")
    with pytest.raises(InvalidUUIDError, match="invalid UUID length: 3"):
        frame_decoder(FixedFraming())(FixedFraming().encode_frame(BytesValue(value=b"abc")), record)


@pytest.mark.parametrize("text", [TEXT, TEXT.upper(), TEXT.replace("-", ""), f"{{{TEXT}}}", f"urn:uuid:{TEXT}"])
def test_forms_of_a_uuid(text: str) -> None:
    assert parse_uuid(text) == HELD
    assert uuid_text(HELD) == TEXT


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "invalid UUID length: 0"),
        ("not-a-uuid", "invalid UUID length: 10"),
        ("\u00e9" * 5, "invalid UUID length: 10"),
        (TEXT[:-1] + "x", "invalid UUID format: "),
        (TEXT[:-2] + " 0", "invalid UUID format: "),
        ("-" * 36, "invalid UUID format: "),
    ],
)
def test_other_texts_are_not_uuids(text: str, reason: str) -> None:
    with pytest.raises(InvalidUUIDError, match=f"^{reason}"):
        parse_uuid(text)
