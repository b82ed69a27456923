"""JSON by columns: many payloads at once, if ``json_rows`` is certain to return the same for each.

Arrow reads lines of JSON, but does not report which line a row comes from: two objects in one line are two rows, and an
object over two lines is one. It also accepts invalid JSON (NaN), and crashes on a ``null`` between rows. So the text is
checked first. It must have n lines, each of which begins with an opening brace and ends with a closing one. A closing
brace may be followed only by a comma, a closing bracket, another closing brace or the line's end. Then any text that
Arrow accepts has one row per line:

* A line's first brace opens a row. If that closes before the line ends, a comma, bracket or brace follows at the top
  level, which Arrow refuses; so the next row begins with the next line.
* If it does not close in its line, the line ends with the brace of an inner object, or within a string. Next are the
  line feed, which no string may contain, and the next line's opening brace, which may not follow a closing one; or the
  end of the text. Arrow refuses these, too.
"""

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.types as pt

from tidelog.spark.read.json_rows import DATE, TIMESTAMP, bytes_of_base64

_BEHIND_BRACE: Final = re.compile(rb"\}[ \t\r]*[^ \t\r\n,\]}]")
_NO_NUMBER: Final = re.compile(rb"[:\[,][ \t\r]*-?(?:NaN|Inf)")
_STRING: Final = re.compile(rb'"(?:[^"\\\n]|\\.)*"')
_BRACKET: Final = re.compile(rb"[\[{\]}]")
_WHITE: Final = " \t\r\n"
# json_rows recurses into nested values, which fails at a depth of about a thousand.
_MAX_DEPTH: Final = 400
_TIMESTAMP: Final = f"^{TIMESTAMP}$"
_DATE: Final = f"^{DATE}$"
_MIN_BLOCK_BYTES: Final = 1 << 12


class _DoubtError(Exception):
    """A payload may be corrupt: decode row by row."""


class JsonColumns:
    """Decodes payloads that are JSON objects, all at once."""

    def __init__(self, target: pa.StructType) -> None:
        """Decode into ``target``, whose types ``json_rows`` supports."""
        self._target = target
        self._is_able = _is_able(target)
        self._raw = pa.schema([pa.field(field.name, _raw_type(field.type)) for field in target])

    def decode(self, payloads: pa.BinaryArray) -> pa.StructArray | None:
        """Return a row for each payload; None if it is not certain that ``json_rows`` would return the same."""
        if not self._is_able or not len(payloads):
            return None
        try:
            text = _lines(payloads)
            if not _is_one_row_each(text, len(payloads)):
                return None
            table = pj.read_json(
                pa.BufferReader(text),
                # In one block, because Arrow searches the text for the end of a block.
                read_options=pj.ReadOptions(use_threads=False, block_size=max(len(text) + 1, _MIN_BLOCK_BYTES)),
                parse_options=pj.ParseOptions(explicit_schema=self._raw, unexpected_field_behavior="ignore"),
            )
            table.validate(full=True)
            if table.num_rows != len(payloads):
                return None
            columns = [
                _finished(column.combine_chunks(), field.type)
                for column, field in zip(table.columns, self._target, strict=True)
            ]
        except (pa.ArrowInvalid, _DoubtError):
            return None
        return pa.StructArray.from_arrays(columns, fields=list(self._target))


def _lines(payloads: pa.BinaryArray) -> bytes:
    """Return the payloads, one per line, ended by a line feed. Raises ArrowInvalid if a payload is invalid UTF-8."""
    texts = pc.ascii_trim(payloads.cast(pa.string()), _WHITE)
    # A carriage return is equivalent to a line feed in JSON: white space between tokens, refused in a string.
    ended = pc.binary_join_element_wise(pc.replace_substring(texts, "\n", "\r"), "", "\n")
    if pc.max(pc.binary_length(ended)).as_py() > _MAX_DEPTH:
        opened = pc.add(pc.count_substring(ended, "{"), pc.count_substring(ended, "["))
        many = payloads.filter(pc.greater(opened, _MAX_DEPTH)).to_pylist()
        if any(_depth(payload) > _MAX_DEPTH for payload in many):
            raise _DoubtError
    text: bytes = ended.buffers()[2].to_pybytes()
    return text


def _depth(payload: bytes) -> int:
    """Return the nesting depth of a payload that is valid JSON."""
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", payload)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _is_one_row_each(text: bytes, count: int) -> bool:
    """Return whether ``count`` lines that Arrow accepts have one row per line and are valid JSON."""
    return (
        text.startswith(b"{")
        and text.count(b"\n") == count
        and text.count(b"\n{") == count - 1
        and text.count(b"}\n") == count
        # Usually nothing is found, not even in strings. The pattern finds JSON's strings up to the first invalid token.
        and (not _is_suspect(text) or not _is_suspect(_STRING.sub(b'""', text)))
    )


def _is_suspect(text: bytes) -> bool:
    return bool(_BEHIND_BRACE.search(text)) or ((b"NaN" in text or b"Inf" in text) and bool(_NO_NUMBER.search(text)))


def _is_able(kind: pa.DataType) -> bool:
    """Return whether Arrow can read the type from JSON. It reads maps only from arrays, and rounds decimals."""
    if pt.is_struct(kind):
        return all(_is_able(field.type) for field in kind)
    if pt.is_list(kind) and not pt.is_map(kind):
        return _is_able(kind.value_type)
    return not pt.is_map(kind) and not pt.is_decimal(kind)


def _raw_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that Arrow reads, which ``_finished`` converts to ``kind``."""
    if pt.is_struct(kind):
        return pa.struct([pa.field(field.name, _raw_type(field.type)) for field in kind])
    if pt.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _raw_type(kind.value_type)))
    if pt.is_float32(kind):
        return pa.float64()
    return pa.string() if pt.is_temporal(kind) or pt.is_binary(kind) else kind


def _finished(raw: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert ``raw``, of type ``_raw_type(kind)``, to ``kind``. Raises ArrowInvalid or _DoubtError if unsure."""
    if pt.is_struct(kind):
        columns = [_finished(column, field.type) for column, field in zip(raw.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=raw.is_null())
    if pt.is_list(kind):
        return pa.ListArray.from_arrays(
            raw.offsets, _finished(raw.values, kind.value_type), type=kind, mask=raw.is_null()
        )
    if pt.is_floating(kind):
        number = raw.cast(kind, safe=False)
        if pc.any(pc.is_inf(number)).as_py():
            raise _DoubtError
        return number
    if pt.is_date(kind):
        _require(pc.match_substring_regex(raw, _DATE))
        return raw.cast(kind)
    if pt.is_timestamp(kind):
        return _timestamps(raw, kind)
    if pt.is_binary(kind):
        return _bytes(raw)
    return raw


def _timestamps(raw: pa.StringArray, kind: pa.TimestampType) -> pa.Array:
    _require(pc.match_substring_regex(raw, _TIMESTAMP))
    # Arrow accepts at most six fractional digits and requires an offset.
    short = pc.replace_substring_regex(raw, r"(\.[0-9]{6})[0-9]+", r"\1")
    is_zoned = pc.match_substring_regex(short, r"(Z|[+-][0-9]{2}:[0-9]{2})$")
    zoned = pc.if_else(is_zoned, short, pc.binary_join_element_wise(short, "Z", ""))
    return zoned.cast(kind)


def _bytes(raw: pa.StringArray) -> pa.Array:
    try:
        return pa.array([None if text is None else bytes_of_base64(text) for text in raw.to_pylist()], pa.binary())
    except ValueError:
        raise _DoubtError from None


def _require(holds: pa.BooleanArray) -> None:
    if not pc.all(holds, min_count=0).as_py():
        raise _DoubtError
