"""Positions as people write them: a tick, a moment, or how long ago."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from tidelog import At, Positions, Start, Tick
from tidelog_server.cli.exit_codes import CommandError, ExitCode

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
POSITION_HELP: Final = "a tick, @TIME (@2026-01-31T12:00:00Z) or @-AGO (@-1h30m)"
_ENDS: Final = {"earliest": At.earliest(), "latest": At.latest()}
START_HELP: Final = "earliest, latest, tick:N, id:HEX, time:2026-01-31T12:00:00Z, or -AGO (-1h30m)"


def parse_duration(text: str) -> timedelta:
    """Return the length of ``90s``, ``1h30m``, ``250ms`` or ``2d``.

    Raises:
        CommandError: It is no duration.
    """
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise CommandError(f"'{text}' is no duration: write 90s, 1h30m, 250ms or 2d", ExitCode.USAGE)
    try:
        return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
    except OverflowError:
        raise CommandError(f"'{text[:40]}' is too long a duration", ExitCode.USAGE) from None


def moment_ago(text: str) -> datetime:
    """Return the moment that lies a duration before now.

    Raises:
        CommandError: It is no duration, or a longer one than the calendar has.
    """
    try:
        return datetime.now(UTC) - parse_duration(text)
    except OverflowError:
        raise CommandError(f"'{text[:40]}' ago was before the year 1", ExitCode.USAGE) from None


def parse_moment(text: str) -> datetime:
    """Return the moment of an ISO 8601 text; without a zone it means the local one.

    Raises:
        CommandError: It is no moment.
    """
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise CommandError(f"'{text}' is no time: write 2026-01-31T12:00:00Z", ExitCode.USAGE) from error


def parse_position(text: str) -> Tick | datetime:
    """Return a tick, or a moment for what begins with ``@``.

    Raises:
        CommandError: It is neither.
    """
    if text.startswith("@-"):
        return moment_ago(text[2:])
    if text.startswith("@"):
        return parse_moment(text[1:])
    try:
        return Tick.parse(text)
    except ValueError as error:
        raise CommandError(f"'{text}' is no position: write {POSITION_HELP}", ExitCode.USAGE) from error


def parse_positions(texts: Sequence[str]) -> Positions:
    """Return the positions of texts ``orders/0=470112345678901248``, by vchannel.

    Raises:
        CommandError: One has another form, or a vchannel is there twice.
    """
    found: dict[str, Tick] = {}
    for text in texts:
        name, separator, tick = text.rpartition("=")
        if not separator or name in found:
            wrong = f"'{name}' is there twice" if separator else f"'{text}' is no position of a vchannel"
            raise CommandError(f"{wrong}: write VCHANNEL=TICK once for each vchannel", ExitCode.USAGE)
        try:
            found[name] = Tick.parse(tick)
        except ValueError as error:
            raise CommandError(f"'{tick}' of {name} is no tick: {error}", ExitCode.USAGE) from error
    return found


def parse_start(text: str) -> Start:
    """Return where to go on: an end of the vchannel, a tick, a message id or a moment; also what a position may be.

    Raises:
        CommandError: It is none.
    """
    if text in _ENDS:
        return _ENDS[text]
    if text.startswith("-"):
        return moment_ago(text[1:])
    kind, _, value = text.partition(":")
    if kind == "id":
        return _message_id(value)
    if kind == "time":
        return parse_moment(value)
    try:
        return parse_position(text.removeprefix("tick:"))
    except CommandError as error:
        raise CommandError(f"'{text}' is no position: write {START_HELP}", ExitCode.USAGE) from error


def _message_id(text: str) -> At:
    try:
        return At.message_id(bytes.fromhex(text))
    except ValueError as error:
        raise CommandError(f"'{text}' is no message id: write it in hexadecimal", ExitCode.USAGE) from error
