"""``tidelog check``: health checks for monitors and container engines. Each prints one line and sets the exit code.

A health check runs every few seconds, so each command imports only what it needs: checks over HTTP do not import gRPC.
Credentials come from a context or from the variables TIDELOG_TLS_CA, TIDELOG_TLS_CERT, TIDELOG_TLS_KEY,
TIDELOG_TOKEN_FILE and TIDELOG_TOKEN.
"""

import http.client
import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog_cli import http_probe, joined, own_server
from tidelog_cli.exit_codes import CHECK_CODES, CheckCode, CommandError, ExitCode
from tidelog_cli.extras import extra_of
from tidelog_cli.files import local_path
from tidelog_cli.invocation import invoke
from tidelog_cli.numbers import finite, seconds
from tidelog_cli.option_groups import Command, OptionGroup, expanded
from tidelog_cli.options.passed import only_passed
from tidelog_cli.output.escapes import say, shown

if TYPE_CHECKING:
    from tidelog import AsyncClient

_GIB: Final = 1 << 30
# Share of a limit above which a check warns.
_WARN_SHARE: Final = 0.8
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])", re.ASCII)
_CHECK_CHANNEL: Final = "tidelog-check"
_KEPT_BYTES: Final = 1 << 20
# Units of figures: their base unit for Prometheus, and its number of each.
_BASE_UNITS: Final = {"gib": ("bytes", _GIB), "ms": ("seconds", 1e-3), "s": ("seconds", 1)}

_EndpointOption = Annotated[
    str,
    typer.Option(
        "--endpoint",
        envvar="TIDELOG_ENDPOINT",
        callback=only_passed,
        metavar="ADDRESS",
        show_default=False,
        help="As for other commands. Default: the selected context, else this machine, TIDELOG_SERVER__GRPC_PORT or "
        "7420.",
    ),
]
_TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, callback=seconds, help="Seconds to wait for the response.")
]


class _Form(StrEnum):
    TEXT = "text"
    JSON = "json"
    PROM = "prom"


@dataclass(frozen=True, slots=True)
class _Output(OptionGroup):
    """How a check prints its result; the exit code is the same in each form."""

    output: Annotated[
        _Form,
        typer.Option(
            "--output", "-o", help="A line of text as plugins of monitors print it, a JSON object, or Prometheus' text."
        ),
    ] = _Form.TEXT
    json: Annotated[bool, typer.Option("--json", help="As -o json.")] = False
    prom: Annotated[bool, typer.Option("--prom", help="As -o prom.")] = False

    @property
    def form(self) -> _Form:
        """The form that the options name. Raises CommandError if they name several."""
        named = {self.output} - {_Form.TEXT}
        named |= {form for form, is_named in ((_Form.JSON, self.json), (_Form.PROM, self.prom)) if is_named}
        if len(named) > 1:
            raise CommandError("several forms are given: pass one of -o, --json and --prom", ExitCode.USAGE)
        return named.pop() if named else _Form.TEXT


app = typer.Typer(
    name="check",
    no_args_is_help=True,
    help="Run a health check for a monitor or container engine.",
    epilog=CHECK_CODES,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def register(root: typer.Typer) -> None:
    """Add the commands to ``root``."""
    root.add_typer(app, name="check")


def _check(command: Command) -> Command:
    """Add a command to the checks."""
    app.command(epilog=CHECK_CODES)(expanded(command))
    return command


@_check
def health(*, http: own_server.HttpOption, timeout: _TimeoutOption = 2.0, output: _Output) -> None:
    """Check that the server process is alive. For a container's liveness check: restart it when this fails."""
    _answer("health", lambda: _probe(http, "/livez", timeout), output)


@_check
def ready(*, http: own_server.HttpOption, timeout: _TimeoutOption = 2.0, output: _Output) -> None:
    """Check that the server accepts requests. For a load balancer: route no requests to it while this fails."""
    _answer("ready", lambda: _probe(http, "/readyz", timeout), output)


@_check
def disk(
    *,
    warning_gib: Annotated[
        float, typer.Option("--warning-gib", min=0, callback=finite, help="Warning below this free space, GiB.")
    ] = 5.0,
    critical_gib: Annotated[
        float, typer.Option("--critical-gib", min=0, callback=finite, help="Critical below this free space, GiB.")
    ] = 1.0,
    http: own_server.HttpOption,
    timeout: _TimeoutOption = 2.0,
    output: _Output,
) -> None:
    """Check the free space on the disk of the data folder."""

    def look() -> "Finding":
        metrics = _metrics(http, timeout)
        if "tidelog_disk_free_bytes" not in metrics:
            return CheckCode.UNKNOWN, "the server does not report its free disk space", {}
        free_gib = metrics["tidelog_disk_free_bytes"] / _GIB
        code = CheckCode.OK
        if free_gib < warning_gib:
            code = CheckCode.CRITICAL if free_gib < critical_gib else CheckCode.WARNING
        return code, f"{free_gib:.1f} GiB free", {"free_gib": round(free_gib, 3)}

    _answer("disk", look, output)


@_check
def lag(
    group: Annotated[str, typer.Argument(help="Name of the consumer group.")],
    *,
    max_messages: Annotated[
        int | None, typer.Option(min=0, help="Critical above this lag in messages; warning above 80% of it.")
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option(min=0, callback=seconds, help="Critical above this lag in seconds; warning above 80% of it."),
    ] = None,
    endpoint: _EndpointOption = "",
    timeout: _TimeoutOption = 5.0,
    output: _Output,
) -> None:
    """Check the lag of a consumer group: messages summed over vchannels, seconds of the vchannel furthest behind."""

    async def look() -> "Finding":
        async with _client(endpoint, timeout) as client:
            described = await client.describe_group(group)
        messages = sum(each.lag_messages for each in described.positions.values())
        seconds = max((each.lag_s for each in described.positions.values()), default=0.0)
        code = max(over(messages, max_messages), over(seconds, max_seconds))
        text = f"lag is {messages} messages and {seconds:.1f} s"
        return code, text, {"messages": messages, "seconds": round(seconds, 3)}

    _answer("lag", lambda: _within(look, timeout), output, group=group)


@_check
def append(
    *,
    channel: Annotated[
        str, typer.Option(help="Channel to append to; created if missing, with 1 MiB of retention.")
    ] = _CHECK_CHANNEL,
    max_ms: Annotated[
        float | None,
        typer.Option(
            min=0, callback=finite, help="Critical above this latency in milliseconds; warning above 80% of it."
        ),
    ] = None,
    endpoint: _EndpointOption = "",
    timeout: _TimeoutOption = 5.0,
    output: _Output,
) -> None:
    """Append a message, and check that it is acknowledged and readable."""

    async def look() -> "Finding":
        import uuid

        from tidelog import At, Retention

        payload = uuid.uuid4().bytes
        async with _client(endpoint, timeout) as client:
            await client.ensure_channel(channel, retention=Retention(bytes=_KEPT_BYTES))
            begin_s = time.perf_counter()
            result = await client.append(f"{channel}/0", [payload])
            append_ms = (time.perf_counter() - begin_s) * 1e3
            async for batch in client.scan(f"{channel}/0", start=At.tick(result.first_tick)):
                if bytes(batch.payloads[0]) == payload:
                    break
            else:
                return CheckCode.CRITICAL, "an acknowledged message cannot be read", {}
        return over(append_ms, max_ms), f"appended in {append_ms:.1f} ms and read back", {"ms": round(append_ms, 3)}

    _answer("append", lambda: _within(look, timeout), output, channel=channel)


@_check
def backup(
    folder: Annotated[Path, typer.Argument(parser=local_path, help="Folder of backups.")],
    *,
    max_age: Annotated[
        str, typer.Option(help="Critical above this age of the newest backup; warning above 80% of it; e.g. 26h or 2d.")
    ] = "26h",
    output: _Output,
) -> None:
    """Check that the newest backup is complete and recent. Reads only manifests, unlike `tidelog backup verify`."""

    def look() -> "Finding":
        found: Finding = joined.load("tidelog.checks", "backup")(folder, _parse_age(max_age))
        return found

    _answer("backup", look, output, folder=str(folder))


def run(arguments: Sequence[str]) -> int:
    """Run a check and return its exit code. ``arguments`` are those after ``check``."""
    try:
        return invoke(app, arguments, "tidelog check")
    except CommandError as error:
        # The code of wrong arguments of other commands, 2, means critical here.
        say(f"tidelog: {shown(error.message)}", to=sys.stderr)
    except SystemExit:
        # The help was printed instead.
        pass
    return CheckCode.UNKNOWN


Finding = tuple[CheckCode, str, Mapping[str, float]]
"""Verdict, text, and figures; the unit is the last word of a figure's name."""


def _answer(name: str, look: Callable[[], Finding], output: _Output, **subject: str) -> None:
    """Print the finding of ``look`` and exit with its code; exceptions become findings too.

    Args:
        name: Name of the check.
        look: Makes the finding.
        output: The form.
        subject: What is checked, for Prometheus: labels of the result.
    """
    form = output.form
    try:
        code, text, figures = look()
    except OSError as error:
        code, text, figures = CheckCode.CRITICAL, f"no response: {str(error) or type(error).__name__}", {}
    except CommandError as error:
        code, text, figures = CheckCode.UNKNOWN, error.message, {}
    except ModuleNotFoundError as error:
        if (extra := extra_of(error)) is None:
            raise
        code, text, figures = (
            CheckCode.UNKNOWN,
            f"needs {error.name}: run `pip install '.[{extra}]'` in a clone of Tidelog",
            {},
        )
    except ValueError as error:
        code, text, figures = CheckCode.UNKNOWN, str(error), {}
    if form is _Form.JSON:
        say(json.dumps({"check": name, "status": code.name.lower(), "text": text, **figures}))
    elif form is _Form.PROM:
        say(_prometheus_text(name, code, figures, subject), end="")
    else:
        told = " ".join(f"{figure}={value}" for figure, value in figures.items())
        # One line, as plugins of monitors print: text of a server may have several.
        say(f"{code.name} {name}: {shown(text)}" + (f" | {told}" if told else ""))
    sys.stdout.flush()
    raise typer.Exit(int(code))


def _prometheus_text(name: str, code: CheckCode, figures: Mapping[str, float], subject: Mapping[str, str]) -> str:
    from tidelog_cli.metrics_text import Figure, text_of

    states = ", ".join(f"{each.value} {each.name.lower()}" for each in CheckCode)
    found = [Figure("tidelog_check_status", f"Result of a check: {states}.", {"check": name, **subject}, code)]
    for figure, value in figures.items():
        *words, unit = figure.split("_")
        base, factor = _BASE_UNITS.get(unit, (unit, 1))
        metric = "_".join(("tidelog_check", name, *words, base))
        found.append(Figure(metric, f"What the check {name} found.", subject, value * factor))
    return text_of(found)


def _within(look: Callable[[], Any], timeout_s: float) -> Finding:
    """Run an asynchronous check. A server that refuses or does not respond in time is a critical finding."""
    import asyncio

    import tidelog
    from tidelog_cli import event_loop

    async def bounded() -> Finding:
        async with asyncio.timeout(timeout_s):
            found: Finding = await look()
            return found

    try:
        return event_loop.run(bounded())
    except TimeoutError:
        return CheckCode.CRITICAL, f"no response within {timeout_s:g} s", {}
    except (tidelog.GroupNotFoundError, tidelog.InvalidRequestError) as error:
        return CheckCode.UNKNOWN, str(error), {}
    except tidelog.TidelogError as error:
        return CheckCode.CRITICAL, str(error), {}


def _got(endpoint: str, path: str, timeout_s: float) -> tuple[int, str]:
    """Return what ``http_probe.get`` returns; its errors name the address."""
    try:
        return http_probe.get(endpoint, path, timeout_s)
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionError(f"{endpoint}: {str(error) or type(error).__name__}") from error


def _probe(endpoint: str, path: str, timeout_s: float) -> Finding:
    status, text = _got(endpoint, path, timeout_s)
    return CheckCode.OK if status == 200 else CheckCode.CRITICAL, text.strip() or f"HTTP {status}", {}


def _metrics(endpoint: str, timeout_s: float) -> dict[str, float]:
    status, text = _got(endpoint, "/metrics", timeout_s)
    if status != 200:
        raise OSError(f"/metrics returned HTTP {status}")
    # Imported here because the parser takes a twentieth of a second to import, and the other checks do without.
    from tidelog_cli.metrics_text import without_labels

    return without_labels(text)


def _client(endpoint: str, timeout_s: float) -> "AsyncClient":
    """Return a client of the server that the options, the environment or a context name, else of this machine's."""
    from tidelog_cli.connection import client_of
    from tidelog_cli.options.target import target_at

    return client_of(target_at(endpoint, default=own_server.grpc_endpoint()), timeout_s=timeout_s)


def over(value: float, limit: float | None) -> CheckCode:
    """Return critical above ``limit``, warning above ``_WARN_SHARE`` of it, otherwise ok."""
    if limit is None or value <= _WARN_SHARE * limit:
        return CheckCode.OK
    return CheckCode.CRITICAL if value > limit else CheckCode.WARNING


def _parse_age(age: str) -> float:
    found = _AGE.fullmatch(age)
    if found is None:
        raise ValueError(f"invalid --max-age '{age}': expected a number with the unit s, m, h or d, e.g. 26h")
    return float(found[1]) * _UNITS_S[found[2]]
