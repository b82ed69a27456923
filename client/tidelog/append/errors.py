"""The error of an append that was divided, which the client raises by itself."""

from collections.abc import Sequence

from tidelog.append.dividing import FailedPart
from tidelog.errors import TidelogError
from tidelog.types import AppendPart, AppendResult


class AppendPartlyDoneError(TidelogError):
    """An append to several vchannels failed on some of them; the ``__cause__`` is the first reason.

    Its ``effect`` is ``unknown``: repeating the call would append the messages of ``done`` again.

    What to do: check its cause, then append the messages of ``not_done`` again; those of ``unknown`` may be in the log.

    Attributes:
        done: The parts that are in the log.
        not_done: The parts that are not in the log.
        unknown: The parts of which this is not known.
    """

    done: tuple[AppendPart, ...] = ()
    not_done: tuple[FailedPart, ...] = ()
    unknown: tuple[FailedPart, ...] = ()


def result_of(done: Sequence[AppendPart], failed: Sequence[FailedPart]) -> AppendResult:
    """Return the result of an append of these parts. If some have ``failed``, raise its error.

    If all parts have one outcome, it is the error of the first one.
    """
    if not failed:
        return AppendResult.of_parts(done)
    unknown = tuple(part for part in failed if part.error.effect == "unknown")
    not_done = tuple(part for part in failed if part.error.effect == "none")
    cause = (unknown or not_done)[0].error
    if not done and not (unknown and not_done):
        raise cause
    shown = "; ".join(
        f"{what}: {', '.join(part.vchannel for part in parts)}"
        for what, parts in (("in the log", done), ("not in the log", not_done), ("unknown", unknown))
        if parts
    )
    error = AppendPartlyDoneError(
        f"the append failed on some vchannels ({shown}): {cause}", effect="unknown", values=cause.values
    )
    error.done, error.not_done, error.unknown = tuple(done), not_done, unknown
    raise error from cause
