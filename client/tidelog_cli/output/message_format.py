r"""The templates of ``--format``, with the letters of kcat: ``%k %s\n`` is a line with the key and the payload.

A template is compiled once; a message costs one call for each of its letters.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Final

from tidelog import StoredMessage
from tidelog_cli.exit_codes import CommandError, ExitCode

_Part = Callable[[StoredMessage], bytes]

_LETTERS: Final[Mapping[str, tuple[str, _Part]]] = {
    "s": ("payload", lambda message: message.payload),
    "S": ("bytes of the payload", lambda message: b"%d" % len(message.payload)),
    "k": ("key", lambda message: message.key or b""),
    "K": ("bytes of the key, -1 without one", lambda message: b"%d" % _key_bytes(message)),
    "t": ("channel", lambda message: message.vchannel.rpartition("/")[0].encode()),
    "p": ("index of the vchannel", lambda message: message.vchannel.rpartition("/")[2].encode()),
    "o": ("tick", lambda message: b"%d" % message.tick),
    "T": ("event time, else time of the tick, in ms", lambda message: b"%d" % _time_ms(message)),
    "h": ("properties as NAME=VALUE,…", lambda message: _properties(message).encode()),
    "%": ("a percent sign", lambda _: b"%"),
}  # fmt: skip
LETTERS: Final = ", ".join(f"%{letter} {meaning}" for letter, (meaning, _) in _LETTERS.items())
"""The letters and what they stand for, for helps and errors."""
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}
_TOKEN: Final = re.compile(
    r"%(?P<letter>.?)|\\(?:x(?P<hex>[0-9A-Fa-f]{2})|(?P<escape>.?))|(?P<text>[^%\\]+)", re.DOTALL
)


def compiled(template: str) -> _Part:
    """Return a function that formats a message.

    Raises:
        CommandError: A letter or an escape is unknown; the error lists those that exist.
    """
    parts = [_part(token) for token in _TOKEN.finditer(template)]
    return lambda message: b"".join([part(message) for part in parts])


def _part(token: "re.Match[str]") -> _Part:
    letter, digits, escape, text = token.group("letter", "hex", "escape", "text")
    if letter is not None:
        if letter not in _LETTERS:
            raise CommandError(f"unknown '%{letter}' in --format: expected {LETTERS}", ExitCode.USAGE)
        return _LETTERS[letter][1]
    if escape is not None and escape not in _ESCAPES:
        raise CommandError(rf"unknown '\{escape}' in --format: expected \n, \t, \r, \\ or \xNN", ExitCode.USAGE)
    content = bytes.fromhex(digits) if digits else _ESCAPES[escape] if escape else os.fsencode(text)
    return lambda _: content


def _key_bytes(message: StoredMessage) -> int:
    return -1 if message.key is None else len(message.key)


def _time_ms(message: StoredMessage) -> int:
    # The timestamp of Kafka is that of the producer, if it sets one.
    return message.tick.physical_ms if message.event_time_ms is None else message.event_time_ms


def _properties(message: StoredMessage) -> str:
    return ",".join(f"{name}={value}" for name, value in message.properties.items())
