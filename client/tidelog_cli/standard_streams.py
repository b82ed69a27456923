"""The standard streams of the process: all three are open, and a character that one cannot show does not end a command.

Imports only light modules of the standard library: it runs before everything else.
"""

import codecs
import io
import json
import os
import sys
from typing import Final

_STREAMS: Final = (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_WRONLY), ("stderr", "w", os.O_WRONLY))
_AS_JSON: Final = "tidelog.escape"


def open_missing() -> None:
    """Open /dev/null in place of each standard stream that is closed.

    Ordering: before anything else opens a file, which would get the number of the stream: a log line of the server, or
    an error message, would be written into it.
    """
    for number, (name, mode, flags) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            # The system gives the lowest free number, and those below are open.
            opened = os.open(os.devnull, flags)
            assert opened == number, opened
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def escape_unencodable() -> None:
    r"""Print characters that the encoding of a stream lacks as ``\u`` and four digits, which is valid in JSON too."""
    codecs.register_error(_AS_JSON, _escaped)
    for stream in (sys.stdout, sys.stderr):
        # A test may have replaced them. UTF-8 has every character: `entry` has refused half ones in the arguments.
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors=_AS_JSON)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
