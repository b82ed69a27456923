"""Callbacks of options that are numbers: a range without a maximum lets infinity pass, and no range NaN."""

import math

import typer

from tidelog.wire.durations import check_seconds


def seconds(value: float | None) -> float | None:
    """Return the value of an option that is a duration. Raises BadParameter if it is not finite, or too long."""
    try:
        return value if value is None else check_seconds("it", value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def finite(value: float | None) -> float | None:
    """Return the value of another option that is a number. Raises BadParameter if it is not finite."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"it is {value}, expected a finite number")
    return value
