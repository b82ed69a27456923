"""Calls of an object on threads, of which one runs at a time.

A call whose caller was cancelled continues on its thread, and ends before the next one begins.
"""

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class _Locked(Protocol):
    _lock: "threading.RLock"


_Object = TypeVar("_Object", bound=_Locked)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def one_at_a_time(
    call: Callable[Concatenate[_Object, _Arguments], _Result],
) -> Callable[Concatenate[_Object, _Arguments], _Result]:
    """Let one thread at a time run ``call``; methods of an object share its lock."""

    @wraps(call)
    def guarded(self: _Object, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with self._lock:
            return call(self, *args, **kwargs)

    return guarded
