"""Text for terminals: what others wrote is shown, and never interpreted.

Names, bodies and errors come from other users. A terminal executes control characters, and hides or reorders text at
format characters; ``str.isprintable`` excludes both, and line and paragraph separators.
"""

import json
import sys
from typing import TextIO


def shown(content: bytes | str) -> str:
    """Return bytes or text in one line, with characters escaped that a terminal would interpret."""
    text = content if isinstance(content, str) else content.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def say(text: str, *, to: TextIO | None = None, end: str = "\n", flush: bool = False) -> None:
    r"""Print text and ``end``, by default on stdout; on a terminal with its lines escaped as JSON escapes them.

    ``\u001b`` is valid in a string of JSON, so JSON is still JSON.
    """
    stream = sys.stdout if to is None else to
    if not text.isprintable() and stream.isatty():
        text = "\n".join("".join(map(_escaped, line)) for line in text.split("\n"))
    print(text, file=stream, end=end, flush=flush)


def say_bytes(content: bytes) -> None:
    """Write bytes to stdout as they are; on a terminal as text, with its lines escaped."""
    if sys.stdout.isatty():
        say(content.decode("utf-8", "backslashreplace"), end="")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
    sys.stdout.flush()


def _escaped(character: str) -> str:
    # A tab separates the columns of text.
    return character if character.isprintable() or character == "\t" else json.dumps(character)[1:-1]
