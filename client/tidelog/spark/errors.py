"""The errors of the source, and how Spark reports them."""

import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from tidelog import TidelogError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class OptionError(ValueError):
    """An option is unknown, invalid or contradicts another one; the message names it and the accepted values."""


class ArchiveError(RuntimeError):
    """An archive does not exist, is damaged, is of another log, or is being written by another run."""


class OffsetError(ValueError):
    """An offset of a checkpoint is invalid; the message says what to do."""


class CorruptPayloadError(ValueError):
    """A payload cannot be decoded, and ``mode`` is failfast; the message names vchannel and tick."""


_PLAIN: Final = (TidelogError, OptionError, ArchiveError, OffsetError, CorruptPayloadError)
"""Errors that the user can fix. All others are defects, and keep their traceback."""


def plainly(call: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorate ``call``, which Spark calls, to raise errors that the user can fix without a traceback."""

    @wraps(call)
    def called(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        try:
            return call(*arguments, **named)
        except _PLAIN as error:
            raise _alone(error) from None

    return called


def plainly_each(items: Iterator[_Result]) -> Iterator[_Result]:
    """Yield ``items``, whose errors are raised as by ``plainly``."""
    try:
        yield from items
    except _PLAIN as error:
        raise _alone(error) from None


def _alone(error: Exception) -> Exception:
    """Return ``error`` for Spark to show its message alone, which the text of a traceback would hide.

    Spark's setting spark.sql.execution.pyspark.udf.hideTraceback.enabled sets this variable for all errors of all
    functions. Here it is set in the worker process that ends with this error.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name.startswith("pyspark."):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    return error.with_traceback(None)
