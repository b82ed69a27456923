"""The options of commands for the settings of a mailbox."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final

import typer

from tidelog import MailboxSettings
from tidelog.admin.channel_types import parse_size
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.option_groups import replaced
from tidelog_cli.options.positions import parse_duration


def _ms(text: str) -> int:
    return parse_duration(text) // timedelta(milliseconds=1)


def _several_ms(text: str) -> tuple[int, ...]:
    return tuple(map(_ms, text.split(","))) if text else ()


def _bytes(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error


@dataclass(frozen=True, slots=True)
class _Option:
    """An option: its name, its help, the type that typer parses, and what makes a setting of it."""

    name: str
    text: str
    kind: type = str
    parsed: Callable[[Any], Any] = _ms


_OPTIONS: Final = {
    "lease_ms": _Option("--lease", "Lease of a fetch that names none, e.g. 30s. Default 30s."),
    "max_lease_ms": _Option("--max-lease", "Longest lease, at most 7d. Default 12h."),
    "max_deliveries": _Option(
        "--max-deliveries", "Deliveries after which a message is dead; 0 for no limit. Default 0.", int, int
    ),
    "dead_letter": _Option(
        "--dead-letter", "Mailbox that receives dead messages; '' to keep them. Default ''.", parsed=str
    ),
    "backoff_ms": _Option(
        "--backoff",
        "Delays after rejections, e.g. 1s,10s,5m; the last one repeats. '' for none. Default ''.",
        parsed=_several_ms,
    ),
    "delay_ms": _Option("--delay", "Delay of messages that name none, e.g. 10s. Default 0s."),
    "ttl_ms": _Option("--ttl", "Age at which an undelivered message expires, e.g. 3d; 0s for never. Default 0s."),
    "dedup_window_ms": _Option("--dedup-window", "Time for which deduplication keys are remembered. Default 5m."),
    "max_in_flight": _Option("--max-in-flight", "Messages that may be leased at a time. Default 100000.", int, int),
    "max_messages": _Option("--max-messages", "Messages that the mailbox may hold. Default 1000000.", int, int),
    "max_body_bytes": _Option(
        "--max-body", "Size of the largest body, e.g. 64KiB; at most 64MiB. Default 1MiB.", parsed=_bytes
    ),
}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Return ``command`` with an option for each setting; it gets the settings as its parameter ``settings``."""
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(option))
        for name, option in _OPTIONS.items()
    ]
    return replaced(command, "settings", options, _settings)


def _settings(**texts: Any) -> MailboxSettings:
    given = {name: _OPTIONS[name].parsed(text) for name, text in texts.items() if text is not None}
    return MailboxSettings(**given)


def _annotation(option: _Option) -> Any:
    return Annotated[option.kind | None, typer.Option(option.name, help=option.text)]
