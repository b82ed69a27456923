"""Errors without a traceback. Spark prints the whole traceback above the message, which hides it."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from tidelog import TidelogError
from tidelog.spark.archive.manifest import ArchiveError
from tidelog.spark.option_error import OptionError
from tidelog.spark.stream.offsets import OffsetError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def plainly(call: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorate ``call``, which Spark calls, to raise errors that the user can fix without a traceback.

    All other errors are defects and keep their traceback.
    """

    @wraps(call)
    def called(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        try:
            return call(*arguments, **named)
        except (TidelogError, OptionError, ArchiveError, OffsetError) as error:
            raise error.with_traceback(None) from None

    return called
