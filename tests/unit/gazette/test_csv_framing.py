"""CSV records have the quoting, the field counts and the errors of Gazette's framing. Method: literal texts."""

from collections.abc import Callable
from io import BytesIO

import pytest

from tidelog.gazette import (
    ByteReader,
    CSVFraming,
    FieldCountError,
    FrameTooLargeError,
    MalformedFrameError,
    NotFrameableError,
    UnexpectedEOFError,
    frame_decoder,
)

UUID_TEXT = "83fc2f95-cc5f-11e9-82aa-0123456789ab"


class Fields:
    """A message of any fields."""

    def __init__(self, *fields: str) -> None:
        self.fields = list(fields)

    def marshal_csv(self) -> list[str]:
        return self.fields

    def unmarshal_csv(self, fields: list[str]) -> None:
        self.fields = list(fields)


def read_all(data: bytes, **options: int) -> list[list[str] | str]:
    """Return the records of `data`, and the texts of the errors between them."""
    unmarshal = CSVFraming(**options).new_unmarshal_func(ByteReader(data))
    return list(iter(lambda: read_one(unmarshal), "end"))


def read_one(unmarshal: Callable[[object], None]) -> list[str] | str:
    message = Fields()
    try:
        unmarshal(message)
    except EOFError:
        return "end"
    except (MalformedFrameError, UnexpectedEOFError) as error:
        return str(error)
    return message.fields


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (["a", "b"], "a,b\n"),
        (["", ""], ",\n"),
        (["a,b", 'say "x"', "l1\nl2", "c\rd"], '"a,b","say ""x""","l1\nl2","c\rd"\n'),
        ([" a", "\tb", "\u3000c", "d "], '" a","\tb","\u3000c",d \n'),
        (["\\.", "\\.x", "\x1ca"], '"\\.",\\.x,\x1ca\n'),
        (["ö", "\udcff"], "ö,\udcff\n"),
    ],
)
def test_fields_are_quoted_where_they_must_be_and_read_back(fields: list[str], text: str) -> None:
    frame = CSVFraming().encode_frame(Fields(*fields))
    assert frame == text.encode("utf-8", "surrogateescape")
    message = Fields()
    frame_decoder(CSVFraming())(frame, message)
    assert message.fields == fields
    assert read_all(frame) == [fields]
    written = BytesIO()
    CSVFraming().marshal(message, written)
    assert written.getvalue() == frame


def test_a_record_with_another_number_of_fields_is_an_error_and_consumed() -> None:
    assert read_all(b"a,b\nc\nd,e\n") == [["a", "b"], "record on line 2: wrong number of fields", ["d", "e"]]
    decode = frame_decoder(CSVFraming())
    decode(b"a,b\n", Fields())
    with pytest.raises(FieldCountError) as caught:
        decode(b"\nc,d,e\n", Fields())
    assert (caught.value.line, caught.value.fields, caught.value.expected_fields) == (3, 3, 2)


def test_lines_are_counted_within_quotes_blank_lines_and_malformed_records() -> None:
    assert read_all(b'a,"x\ny"\n\nb\n') == [["a", "x\ny"], "record on line 4: wrong number of fields"]
    assert read_all(b'a,b\na"b,c\nd\n')[2] == "record on line 3: wrong number of fields"


def test_blank_lines_and_carriage_returns_before_newlines_are_skipped() -> None:
    assert read_all(b'\r\n\na,b\r\n\n"c\r\nd",e\n\n') == [["a", "b"], ["c\nd", "e"]]
    assert read_all(b"\r\r\n") == [["\r"]]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'a"b,c\n', "a quote is within the field at character 1 of the record: quote the whole field"),
        (b'x,"a"b\n', "text follows the quoted field at character 3 of the record, expected a comma or the line end"),
    ],
)
def test_misplaced_quotes_consume_their_line(data: bytes, text: str) -> None:
    first, second = read_all(data + b"d,e\n")
    assert str(first).startswith(text)
    assert second == ["d", "e"]
    with pytest.raises(MalformedFrameError):
        CSVFraming().unpack(ByteReader(data))


def test_an_incomplete_last_record_is_an_unexpected_end() -> None:
    assert read_all(b"a,b\nc,d") == [["a", "b"], "unexpected EOF"]
    assert read_all(b'a,"b\nc""') == ["unexpected EOF"]
    for frame in (b"a,b", b'a,"b\n', b""):
        with pytest.raises(UnexpectedEOFError, match=r"unexpected EOF$"):
            frame_decoder(CSVFraming())(frame, Fields())


def test_a_frame_has_one_record() -> None:
    with pytest.raises(MalformedFrameError, match="2 characters follow the record"):
        frame_decoder(CSVFraming())(b"a\nb\n", Fields())
    with pytest.raises(MalformedFrameError, match="2 characters follow the record"):
        frame_decoder(CSVFraming())(b'"a"\nb\n', Fields())


def test_unpack_returns_the_bytes_of_each_record() -> None:
    reader = ByteReader(b'\na,"x\ny"\r\nb,c\n\n')
    assert [CSVFraming().unpack(reader) for _ in range(2)] == [b'\na,"x\ny"\r\n', b"b,c\n"]
    with pytest.raises(EOFError):
        CSVFraming().unpack(reader)


def test_a_record_over_the_limit_is_refused() -> None:
    framing = CSVFraming(max_bytes=4)
    with pytest.raises(FrameTooLargeError, match="the frame has 6 bytes, expected at most 4"):
        framing.encode_frame(Fields("a", "bcd"))
    reader = ByteReader(b"abc\n" + b"x" * 10)
    assert framing.unpack(reader) == b"abc\n"
    with pytest.raises(FrameTooLargeError):
        framing.unpack(reader)


def test_a_message_without_csv_methods_is_refused() -> None:
    with pytest.raises(NotFrameableError, match="dict is not CSVFrameable"):
        CSVFraming().encode_frame({})
    with pytest.raises(NotFrameableError, match="marshal_csv and unmarshal_csv"):
        frame_decoder(CSVFraming())(b"a\n", {})
