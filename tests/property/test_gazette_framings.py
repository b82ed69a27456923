"""Streams of frames are read as they were written, also where other bytes lie between fixed frames.

Method: random messages and random garbage, read through buffers of random sizes.
"""

from io import BytesIO
from typing import Any

from google.protobuf.wrappers_pb2 import BytesValue
from hypothesis import given
from hypothesis import strategies as st

from tidelog.gazette import (
    FIXED_FRAME_WORD,
    ByteReader,
    CSVFraming,
    DesyncDetectedError,
    FixedFraming,
    JSONFraming,
    frame_decoder,
)
from tidelog.gazette.framings.csv_record_text import parse_record, record_text

TEXTS = st.text(alphabet=st.characters(codec="utf-8"))
FIELDS = st.lists(TEXTS.map(lambda text: text.replace("\r\n", "\n")), min_size=1, max_size=5)
SMALL = st.integers(1, 40)
GARBAGE = st.binary(max_size=30).filter(lambda data: FIXED_FRAME_WORD not in data)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(TEXTS, parts, max_size=3),
    max_leaves=10,
)
JSON_OBJECTS = st.dictionaries(TEXTS, JSON_VALUES, max_size=4)


@given(st.lists(st.tuples(GARBAGE, st.binary(max_size=30))), SMALL)
def test_garbage_between_fixed_frames_is_reported_and_the_frames_are_read(
    parts: list[tuple[bytes, bytes]], buffer_bytes: int
) -> None:
    framing = FixedFraming()
    frames = [framing.encode_frame(BytesValue(value=payload)) for _, payload in parts]
    stream = b"".join(garbage + frame for (garbage, _), frame in zip(parts, frames, strict=True))
    reader = ByteReader(BytesIO(stream), buffer_bytes=buffer_bytes)
    read, skipped = [], b""
    while True:
        try:
            read.append(framing.unpack(reader))
        except DesyncDetectedError as error:
            skipped += error.content
        except EOFError:
            break
    assert read == frames
    assert skipped == b"".join(garbage for garbage, _ in parts)


@given(st.lists(JSON_OBJECTS, max_size=5), SMALL, st.sampled_from(["json", "msgspec", "orjson"]), st.booleans())
def test_lines_of_json_are_read_as_written(values: list[dict[str, Any]], size: int, codec: Any, escapes: bool) -> None:
    framing = JSONFraming(codec=codec, go_escapes=escapes)
    lines = [framing.encode_frame(value) for value in values]
    assert all(line.count(b"\n") == 1 for line in lines)
    reader = ByteReader(BytesIO(b"".join(lines)), buffer_bytes=size)
    unmarshal, decode = framing.new_unmarshal_func(reader), frame_decoder(framing)
    for value, line in zip(values, lines, strict=True):
        read: dict[str, Any] = {}
        unmarshal(read)
        whole: dict[str, Any] = {}
        decode(line, whole)
        assert read == whole == value


@given(FIELDS)
def test_fields_of_csv_survive_a_round_trip(fields: list[str]) -> None:
    # A single empty field is a blank line, which readers skip; a first field is a UUID in practice.
    text = record_text(fields)
    assert parse_record(text) == ([] if fields == [""] else fields)


@given(st.lists(st.lists(TEXTS, min_size=2, max_size=2), max_size=5), SMALL)
def test_records_of_csv_are_unpacked_at_their_ends(records: list[list[str]], size: int) -> None:
    frames = [record_text(fields).encode() for fields in records]
    reader = ByteReader(BytesIO(b"".join(frames)), buffer_bytes=size)
    assert [CSVFraming().unpack(reader) for _ in frames] == frames
