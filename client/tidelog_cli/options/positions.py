"""Parses positions on the command line: ticks, times, and durations before now."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from tidelog import At, Positions, Start, Tick
from tidelog.admin.channel_types import duration_of
from tidelog.tick import without_zone
from tidelog_cli.exit_codes import CommandError, ExitCode

_MAX_DIGITS: Final = len(str(1 << 64))
POSITION_HELP: Final = "a tick, @TIME (@2026-01-31T12:00:00Z) or @-AGO (@-1h30m)"
_ENDS: Final = {"earliest": At.earliest(), "latest": At.latest()}
START_HELP: Final = "earliest, latest, tick:N, id:HEX, time:2026-01-31T12:00:00Z, or -AGO (-1h30m)"


def whole_number(text: str) -> int | None:
    """Return the number that ``text`` denotes in decimal digits; None if it denotes none of 1 to 2**64 - 1.

    Ordering: the length first, because ``int`` refuses thousands of digits with an error of its own.
    """
    is_short = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    return int(text) if is_short and 0 < int(text) < 1 << 64 else None


def parse_duration(text: str) -> timedelta:
    """Return the duration of a text such as ``90s``, ``1h30m``, ``250ms`` or ``2d``.

    Raises:
        CommandError: ``text`` is not a duration.
    """
    try:
        duration = duration_of(text)
    except OverflowError:
        raise CommandError(f"duration '{text[:40]}' is too long: expected at most 999999999d", ExitCode.USAGE) from None
    if duration is None:
        raise CommandError(f"invalid duration '{text}': expected e.g. 90s, 1h30m, 250ms or 2d", ExitCode.USAGE)
    return duration


def moment_ago(text: str) -> datetime:
    """Return the time that is a duration before now.

    Raises:
        CommandError: ``text`` is not a duration, or the time is before the year 1.
    """
    try:
        return datetime.now(UTC) - parse_duration(text)
    except OverflowError:
        raise CommandError(f"'{text[:40]}' ago is before the year 1: use a shorter duration", ExitCode.USAGE) from None


def parse_moment(text: str) -> datetime:
    """Return the time of an ISO 8601 text, in UTC.

    Raises:
        CommandError: ``text`` is not a time, or has no time zone.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.utcoffset() is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise CommandError(f"invalid time '{text}': expected e.g. 2026-01-31T12:00:00Z", ExitCode.USAGE) from error
    raise CommandError(without_zone(moment), ExitCode.USAGE)


def parse_position(text: str) -> Tick | datetime:
    """Return a tick, or a time if ``text`` begins with ``@``.

    Raises:
        CommandError: ``text`` is neither.
    """
    if text.startswith("@-"):
        return moment_ago(text[2:])
    if text.startswith("@"):
        return parse_moment(text[1:])
    try:
        return Tick.parse(text)
    except ValueError as error:
        raise CommandError(f"invalid position '{text}': expected {POSITION_HELP}", ExitCode.USAGE) from error


def pairs_of(texts: Sequence[str], what: str, form: str, each: str) -> dict[str, str]:
    """Return names and values, from texts such as ``NAME=VALUE``.

    Args:
        texts: The texts.
        what: What one is, for the error.
        form: The form of one, for the error.
        each: What a name is of, for the error.

    Raises:
        CommandError: A text has another form, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or name in found:
            wrong = f"'{name}' is given twice" if separator else f"invalid {what} '{text}'"
            raise CommandError(f"{wrong}: expected {form}, once for each {each}", ExitCode.USAGE)
        found[name] = value
    return found


def parse_positions(texts: Sequence[str]) -> Positions:
    """Return positions by vchannel, from texts such as ``orders/0=470112345678901248``.

    Raises:
        CommandError: A text is not ``VCHANNEL=TICK``, or a vchannel is given twice.
    """
    found: dict[str, Tick] = {}
    for name, tick in pairs_of(texts, "position", "VCHANNEL=TICK", "vchannel").items():
        try:
            found[name] = Tick.parse(tick)
        except ValueError as error:
            raise CommandError(f"invalid tick '{tick}' of {name}: {error}", ExitCode.USAGE) from error
    return found


def parse_start(text: str) -> Start:
    """Return the start of a text in one of the forms of ``START_HELP``, or of ``POSITION_HELP``.

    Raises:
        CommandError: ``text`` is invalid.
    """
    if text in _ENDS:
        return _ENDS[text]
    if text.startswith("-"):
        return moment_ago(text[1:])
    if text.startswith("@"):
        # Its errors state what is wrong with the time.
        return parse_position(text)
    kind, _, value = text.partition(":")
    if kind == "id":
        return _message_id(value)
    if kind == "time":
        return parse_moment(value)
    try:
        return parse_position(text.removeprefix("tick:"))
    except CommandError as error:
        raise CommandError(f"invalid position '{text}': expected {START_HELP}", ExitCode.USAGE) from error


def _message_id(text: str) -> At:
    try:
        return At.message_id(bytes.fromhex(text))
    except ValueError as error:
        raise CommandError(f"invalid message id '{text}': expected hexadecimal digits", ExitCode.USAGE) from error
