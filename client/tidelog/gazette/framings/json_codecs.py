"""JSON encoders and decoders: msgspec or orjson if one is installed, ``json`` otherwise.

All write UTF-8 without spaces, and refuse numbers that JSON does not have. The text of a float may differ between them.
"""

import json
import math
from collections.abc import Callable
from importlib.util import find_spec
from json import encoder as json_encoder
from typing import Any, Final, Literal, NamedTuple, NoReturn

JSONCodecName = Literal["json", "msgspec", "orjson"]


class JSONCodec(NamedTuple):
    """An encoder and a decoder.

    Attributes:
        name: The package.
        encode: Returns the text of a value; raises ``TypeError`` or ``ValueError`` for a value that JSON does not have.
        decode: Returns the value of one text; raises ``ValueError`` for an invalid one.
    """

    name: JSONCodecName
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def json_codec(name: JSONCodecName | None = None) -> JSONCodec:
    """Return the codec ``name``, or the fastest one that is installed.

    Raises:
        ImportError: The package ``name`` is not installed.
    """
    match name or next((each for each in ("msgspec", "orjson") if find_spec(each)), "json"):
        case "msgspec":
            return _msgspec_codec()
        case "orjson":
            return _orjson_codec()
        case _:
            return JSONCodec("json", _standard_encoder(), _standard_decoder())


def _msgspec_codec() -> JSONCodec:
    import msgspec

    decode_text: Final = msgspec.json.Decoder().decode

    def decode(text: bytes) -> Any:
        try:
            return decode_text(text)
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from error

    return JSONCodec("msgspec", _finite_only(msgspec.json.Encoder().encode), decode)


def _orjson_codec() -> JSONCodec:
    import orjson

    return JSONCodec("orjson", _finite_only(orjson.dumps), orjson.loads)


def _finite_only(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return ``encode`` with an error for numbers that are not finite, for which these packages write null."""

    def checked(value: Any) -> bytes:
        text = encode(value)
        if b"null" in text:
            _refuse_not_finite(value)
        return text

    return checked


def _refuse_not_finite(value: Any) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a number of JSON")
    elif isinstance(value, dict):
        for part in value.values():
            _refuse_not_finite(part)
    elif isinstance(value, list | tuple):
        for part in value:
            _refuse_not_finite(part)


def _standard_encoder() -> Callable[[Any], bytes]:
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    make: Final = getattr(json_encoder, "c_make_encoder", None)
    if make is None:
        return lambda value: encoder.encode(value).encode()
    # `JSONEncoder.encode` makes this object for each value, which takes as long as encoding 50 bytes. Without markers
    # it does not look for circles: the recursion limit ends them.
    quote = getattr(json_encoder, "c_encode_basestring", None) or json_encoder.encode_basestring
    chunks_of = make(None, _refuse, quote, None, ":", ",", False, False, False)
    join = "".join
    return lambda value: join(chunks_of(value, 0)).encode()


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"{type(value).__name__} is not a type of JSON")


def _standard_decoder() -> Callable[[bytes], Any]:
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    # The decoder's own entry point: `json.loads` examines the encoding and the white space of each text first.
    scan: Callable[[str, int], tuple[Any, int]] = vars(decoder)["scan_once"]

    def decode(text: bytes) -> Any:
        characters = text.decode()
        try:
            value, end = scan(characters, 0)
        except StopIteration:
            return decoder.decode(characters)
        return value if characters[end:].strip(" \t\r\n") == "" else decoder.decode(characters)

    return decode


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
