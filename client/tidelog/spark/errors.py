"""The errors of the source, and how Spark reports them."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from tidelog import TidelogError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class OptionError(ValueError):
    """An option is unknown, invalid or contradicts another one; the message names it and the accepted values."""


class ArchiveError(RuntimeError):
    """An archive does not exist, is damaged, is of another log, or is being written by another run."""


class OffsetError(ValueError):
    """An offset of a checkpoint is invalid; the message says what to do."""


def plainly(call: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorate ``call``, which Spark calls, to raise errors that the user can fix without a traceback.

    Spark prints the whole traceback above the message, which hides it. All other errors are defects and keep theirs.
    """

    @wraps(call)
    def called(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        try:
            return call(*arguments, **named)
        except (TidelogError, OptionError, ArchiveError, OffsetError) as error:
            raise error.with_traceback(None) from None

    return called
