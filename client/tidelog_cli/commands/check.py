"""``tidelog check``: health checks for monitors and container engines. Each prints one line and sets the exit code.

A health check runs every few seconds, so each command imports only what it needs: checks over HTTP do not import gRPC.
Credentials come from the variables TIDELOG_TLS_CA, TIDELOG_TLS_CERT, TIDELOG_TLS_KEY, TIDELOG_TOKEN_FILE and
TIDELOG_TOKEN.
"""

import http.client
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog_cli import http_probe, joined, own_server
from tidelog_cli.exit_codes import CHECK_CODES, CheckCode, CommandError
from tidelog_cli.extras import extra_of
from tidelog_cli.files import local_path
from tidelog_cli.invocation import invoke
from tidelog_cli.numbers import finite, seconds
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

_EndpointOption = Annotated[
    str,
    typer.Option(
        "--endpoint",
        envvar="TIDELOG_ENDPOINT",
        default_factory=own_server.grpc_endpoint,
        help="host:port of the server's gRPC endpoint. Default: this machine, TIDELOG_SERVER__GRPC_PORT or 7420.",
    ),
]
_TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, callback=seconds, help="Seconds to wait for the response.")
]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a line of text.")]

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


@app.command(epilog=CHECK_CODES)
def health(*, http: own_server.HttpOption, timeout: _TimeoutOption = 2.0, json: _JsonOption = False) -> None:
    """Check that the server process is alive. For a container's liveness check: restart it when this fails."""
    _answer("health", lambda: _probe(http, "/livez", timeout), as_json=json)


@app.command(epilog=CHECK_CODES)
def ready(*, http: own_server.HttpOption, timeout: _TimeoutOption = 2.0, json: _JsonOption = False) -> None:
    """Check that the server accepts requests. For a load balancer: route no requests to it while this fails."""
    _answer("ready", lambda: _probe(http, "/readyz", timeout), as_json=json)


@app.command(epilog=CHECK_CODES)
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
    json: _JsonOption = False,
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

    _answer("disk", look, as_json=json)


@app.command(epilog=CHECK_CODES)
def lag(
    group: Annotated[str, typer.Argument(help="Name of the consumer group.", show_default=False)],
    *,
    max_messages: Annotated[
        int | None, typer.Option(min=0, help="Critical above this lag in messages; warning above 80% of it.")
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option(min=0, callback=seconds, help="Critical above this lag in seconds; warning above 80% of it."),
    ] = None,
    endpoint: _EndpointOption,
    timeout: _TimeoutOption = 5.0,
    json: _JsonOption = False,
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

    _answer("lag", lambda: _within(look, timeout), as_json=json)


@app.command(epilog=CHECK_CODES)
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
    endpoint: _EndpointOption,
    timeout: _TimeoutOption = 5.0,
    json: _JsonOption = False,
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

    _answer("append", lambda: _within(look, timeout), as_json=json)


@app.command(epilog=CHECK_CODES)
def backup(
    folder: Annotated[Path, typer.Argument(parser=local_path, help="Folder of backups.", show_default=False)],
    *,
    max_age: Annotated[
        str, typer.Option(help="Critical above this age of the newest backup; warning above 80% of it; e.g. 26h or 2d.")
    ] = "26h",
    json: _JsonOption = False,
) -> None:
    """Check that the newest backup is complete and recent. Reads only manifests, unlike `tidelog backup verify`."""
    _answer("backup", lambda: joined.load("tidelog.checks", "backup")(folder, _parse_age(max_age)), as_json=json)


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


def _answer(name: str, look: Callable[[], Finding], *, as_json: bool) -> None:
    """Print the finding of ``look`` and exit with its code; exceptions become findings too."""
    try:
        code, text, figures = look()
    except (OSError, http.client.HTTPException) as error:
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
    if as_json:
        say(json.dumps({"check": name, "status": code.name.lower(), "text": text, **figures}))
    else:
        told = " ".join(f"{figure}={value}" for figure, value in figures.items())
        # One line, as plugins of monitors print: text of a server may have several.
        say(f"{code.name} {name}: {shown(text)}" + (f" | {told}" if told else ""))
    sys.stdout.flush()
    raise typer.Exit(int(code))


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


def _probe(endpoint: str, path: str, timeout_s: float) -> Finding:
    status, text = http_probe.get(endpoint, path, timeout_s)
    return CheckCode.OK if status == 200 else CheckCode.CRITICAL, text.strip() or f"HTTP {status}", {}


def _metrics(endpoint: str, timeout_s: float) -> dict[str, float]:
    status, text = http_probe.get(endpoint, "/metrics", timeout_s)
    if status != 200:
        raise OSError(f"/metrics returned HTTP {status}")
    # Imported here because the parser takes a twentieth of a second to import, and the other checks do without.
    from tidelog_cli.metrics_text import without_labels

    return without_labels(text)


def _client(endpoint: str, timeout_s: float) -> "AsyncClient":
    """Return a client with the credentials of the command line's variables."""
    from tidelog import AsyncClient, TlsOptions, TokenFile
    from tidelog_cli.credential_files import check_credentials

    ca, cert, key = (os.environ.get(f"TIDELOG_TLS_{part}") for part in ("CA", "CERT", "KEY"))
    tls = TlsOptions(*(local_path(file) if file else None for file in (ca, cert, key))) if ca or cert or key else None
    token_file = local_path(path) if (path := os.environ.get("TIDELOG_TOKEN_FILE")) else None
    token = TokenFile(token_file) if token_file else os.environ.get("TIDELOG_TOKEN") or None
    check_credentials(tls, token, token_file)
    return AsyncClient(endpoint, timeout_s=timeout_s, tls=tls, token=token)


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
