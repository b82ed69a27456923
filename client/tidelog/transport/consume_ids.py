"""Ids for calls of ``Consume``, by which the server recognises a repeated call. Pure."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_CALLER_BITS: Final = 40
_CALL_BITS: Final = 24
_MAX_CONSUME_ID: Final = 1 << (_CALLER_BITS + _CALL_BITS)


class ConsumeIds:
    """Assigns ids to calls: a random caller id in the high bits, a counter of that caller's calls in the low bits.

    Why caller ids are reused: the server remembers a bounded number of callers, each by its last call. A client
    therefore uses only as many caller ids as it makes concurrent calls, and does not evict those of other clients.
    """

    def __init__(self) -> None:
        # The last ids of callers that have no call in progress.
        self._free: list[int] = []

    @contextmanager
    def one(self, given: int | None) -> Iterator[int]:
        """Yield the id of a call, reserved while the call lasts: ``given`` if it is set.

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
            # There is no free caller, or it has used all of its ids.
            last = secrets.randbits(_CALLER_BITS) << _CALL_BITS
        return last + 1
