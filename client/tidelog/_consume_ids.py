"""Numbers for calls of ``Consume``, by which the server knows a repeated one. Pure."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_CALLER_BITS: Final = 40
_CALL_BITS: Final = 24
_MAX_CONSUME_ID: Final = 1 << (_CALLER_BITS + _CALL_BITS)


class ConsumeIds:
    """Gives each call a number of a caller that makes one call after the other, and counts up.

    Why callers are used again: the server remembers some callers only, and each is known by its last call. So a client
    has as many callers as calls at once, and takes no room from those of others.
    """

    def __init__(self) -> None:
        # The last numbers of callers that make no call now.
        self._free: list[int] = []

    @contextmanager
    def one(self, given: int | None) -> Iterator[int]:
        """Yield the number of a call, for as long as the call lasts: ``given`` if there is one.

        Raises:
            ValueError: ``given`` is out of range.
        """
        if given is not None:
            if not 1 <= given < _MAX_CONSUME_ID:
                raise ValueError(f"consume_id is {given}, expected 1 to {_MAX_CONSUME_ID - 1}")
            yield given
            return
        consume_id = self._next()
        try:
            yield consume_id
        finally:
            self._free.append(consume_id)

    def _next(self) -> int:
        last = self._free.pop() if self._free else -1
        if not (last + 1) & ((1 << _CALL_BITS) - 1):
            # There is no free caller, or this one has used all of its numbers.
            last = secrets.randbits(_CALLER_BITS) << _CALL_BITS
        return last + 1
