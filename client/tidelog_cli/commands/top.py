"""``tidelog top``: live statistics of a server."""

import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Annotated, Final

import typer
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

import tidelog
from tidelog import AsyncClient
from tidelog_cli import http_probe
from tidelog_cli.connection import connected, run
from tidelog_cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_cli.metrics_text import samples
from tidelog_cli.numbers import seconds
from tidelog_cli.options.target import NOT_GIVEN, EndpointOption
from tidelog_cli.output.escapes import shown
from tidelog_cli.output.records import Output, OutputOption, is_table, yaml_text
from tidelog_cli.output.watch import watched

_ACK: Final = "tidelog_append_ack_seconds_bucket"
_ROWS: Final = 15
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """State of a server at one time.

    Attributes:
        time_s: Time of the sample, monotonic clock.
        metrics: Values of the metrics without labels.
        acks: Histogram of acknowledgement latency: pairs of upper bound in seconds and cumulative count, ascending.
        channels: Number of messages ever appended to each existing channel.
        groups: Lag of each group in messages.
    """

    time_s: float
    metrics: Mapping[str, float]
    acks: Sequence[tuple[float, float]]
    channels: Mapping[str, int]
    groups: Mapping[str, int]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog=COMMON_CODES)(top)


def top(
    *,
    interval: Annotated[float, typer.Option(min=0.1, callback=seconds, help="Seconds between two samples.")] = 1.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="Number of intervals to show. Default: run until Ctrl-C.")
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            envvar="TIDELOG_HTTP_ENDPOINT",
            help="host:port of the server's HTTP endpoint: read the metrics there, for a server of an earlier version.",
        ),
    ] = None,
    endpoint: EndpointOption = NOT_GIVEN,
    output: OutputOption = None,
) -> None:
    """Show rates, latencies, the busiest channels, the groups with the greatest lag, mailboxes, disk and memory.

    Of a cluster, those of the node at the first address; with authentication on, this needs admin.read.
    On a terminal the display refreshes itself. Otherwise, or with -o jsonl, it prints one JSON object per interval.
    """
    before: Sample | None = None

    def look() -> dict[str, object]:
        nonlocal before
        if before is None:
            before = _sample(http, endpoint)
            time.sleep(interval)
        after = _sample(http, endpoint)
        found, before = record(before, after), after
        return found

    def say(found: dict[str, object]) -> None:
        print(f"---\n{yaml_text([found])}" if output is Output.YAML else f"{json.dumps(found)}\n", end="")

    if is_table(output):
        watched(look, Console().print, interval, draw=lambda found, _: picture(found), count=count)
    else:
        watched(look, say, interval, count=count)


def parse(text: str) -> tuple[dict[str, float], list[tuple[float, float]]]:
    """Return the metrics without labels of a Prometheus text, and the buckets of acknowledgement latency. Pure.

    Raises:
        ValueError: The text is not that of a server's metrics.
    """
    metrics: dict[str, float] = {}
    acks: list[tuple[float, float]] = []
    for name, labels, value in samples(text):
        if name == _ACK:
            acks.append((float(labels["le"]), value))
        elif not labels:
            metrics[name] = value
    return metrics, acks


def quantile_s(
    before: Sequence[tuple[float, float]], after: Sequence[tuple[float, float]], share: float
) -> float | None:
    """Return the quantile ``share``, 0 to 1, of the values counted between two samples; None if none was counted. Pure.

    The result is the upper bound of a bucket, so it errs upwards; infinity becomes the greatest finite bound.
    """
    earlier = dict(before)
    counts = [(bound, count - earlier.get(bound, 0.0)) for bound, count in after]
    if not counts or counts[-1][1] <= 0:
        return None
    wanted = share * counts[-1][1]
    finite = [bound for bound, _ in counts if bound != float("inf")]
    return min(next(bound for bound, count in counts if count >= wanted), max(finite))


def record(before: Sample, after: Sample) -> dict[str, object]:
    """Return the figures of the interval between two samples, by name with unit. Pure."""
    seconds = after.time_s - before.time_s
    now = after.metrics

    def rate(name: str) -> float:
        # A server restarted in between counts from 0 again.
        return max(0.0, now.get(name, 0.0) - before.metrics.get(name, 0.0)) / seconds

    p50_s, p99_s = (quantile_s(before.acks, after.acks, share) for share in (0.5, 0.99))
    channels = {name: (count - before.channels.get(name, count)) / seconds for name, count in after.channels.items()}
    return {
        "appended_messages_per_s": round(rate("tidelog_append_messages_total"), 1),
        "appended_mb_per_s": round(rate("tidelog_append_bytes_total") / 1e6, 3),
        "scanned_messages_per_s": round(rate("tidelog_scan_messages_total"), 1),
        "scanned_mb_per_s": round(rate("tidelog_scan_bytes_total") / 1e6, 3),
        "groups_committed_per_s": round(rate("tidelog_commit_groups_total"), 1),
        "ack_p50_ms": None if p50_s is None else p50_s * 1e3,
        "ack_p99_ms": None if p99_s is None else p99_s * 1e3,
        "in_flight_mib": round(now.get("tidelog_append_in_flight_bytes", 0.0) / _MIB, 3),
        "scanners": int(now.get("tidelog_scanners", 0)),
        "open_txns": int(now.get("tidelog_open_txns", 0)),
        "channels": int(now.get("tidelog_channels", 0)),
        "mailboxes": int(now.get("tidelog_mailboxes_open", 0)),
        "damaged_mailboxes": int(now.get("tidelog_mailboxes_unloadable", 0)),
        "oldest_mailbox_message_s": round(now.get("tidelog_mailboxes_oldest_available_seconds", 0.0), 3),
        "waiting_fetches": int(now.get("tidelog_mailbox_waiting_fetches", 0)),
        "is_ready": now.get("tidelog_ready", 1.0) == 1.0,
        "disk_free_gib": round(now.get("tidelog_disk_free_bytes", 0.0) / (1 << 30), 2),
        "memory_mib": round(now.get("process_resident_memory_bytes", 0.0) / _MIB, 1),
        "cpu_share": round(rate("process_cpu_seconds_total"), 3),
        "busiest_channels": _greatest(channels),
        "groups_behind": _greatest(after.groups),
    }


def picture(told: Mapping[str, object]) -> Group:
    """Return the figures of ``record`` as tables. Pure."""
    figures = Table(box=None, show_header=False, padding=(0, 2))
    for _ in range(4):
        figures.add_column(justify="right")
    plain = [(name.replace("_", " "), _shown(value)) for name, value in told.items() if not isinstance(value, dict)]
    for (left, left_value), (right, right_value) in itertools.zip_longest(plain[::2], plain[1::2], fillvalue=("", "")):
        figures.add_row(left, left_value, right, right_value)
    return Group(
        figures,
        _ranking("busiest channels", "messages/s", told["busiest_channels"]),
        _ranking("groups with the greatest lag", "messages", told["groups_behind"]),
    )


def _ranking(title: str, unit: str, values: object) -> Table:
    assert isinstance(values, dict)
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2))
    table.add_column("name")
    table.add_column(unit, justify="right")
    for name, value in values.items():
        table.add_row(Text(shown(name)), _shown(value))
    return table


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return "-" if value is None else str(value)


def _greatest(values: Mapping[str, float]) -> dict[str, float]:
    """Return the greatest values above 0, at most ``_ROWS``, in descending order; equal values by name."""
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    return {name: round(value, 1) for name, value in ordered[:_ROWS] if value > 0}


def _sample(http: str | None, endpoint: str) -> Sample:
    text = None if http is None else _of_http(http)
    text, channels, groups = run(_of_grpc(endpoint, text))
    try:
        metrics, acks = parse(text)
    except ValueError as error:
        hint = "" if http is None else ". Correct --http"
        raise CommandError(f"no metrics from {http or 'the server'}: {error}{hint}", ExitCode.FAILURE) from error
    return Sample(time.monotonic(), metrics, acks, channels, groups)


def _of_http(http: str) -> str:
    """Return the metrics of an HTTP endpoint. Raises CommandError."""
    try:
        status, text = http_probe.get(http, "/metrics", 5.0)
    except (OSError, HTTPException) as error:
        raise CommandError(
            f"no response from {http} ({error}): start a server with `tidelog serve`, or correct --http",
            ExitCode.UNAVAILABLE,
        ) from error
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    if status != 200:
        raise CommandError(f"{http} returned HTTP {status} for /metrics: {text.strip()[:200]}", ExitCode.DENIED)
    return text


async def _of_grpc(endpoint: str, text: str | None) -> tuple[str, dict[str, int], dict[str, int]]:
    """Return the metrics unless they are in ``text``, the number of messages by channel, and the lag by group."""
    async with connected(endpoint, finds_owners=False) as client:
        if text is None:
            text = await metrics_of(client)
        channels = {
            channel.name: sum(vchannel.messages for vchannel in channel.vchannels)
            async for channel in client.list_channels()
        }
        groups = [await client.describe_group(summary.name) async for summary in client.list_groups()]
    return text, channels, {group.name: group.lag_messages for group in groups}


async def metrics_of(client: AsyncClient) -> str:
    """Return the metrics of a client's server. Raises CommandError if it is of an earlier version."""
    try:
        return await client.metrics_text()
    except tidelog.InvalidRequestError as error:
        if error.values:
            raise
        # A server of an earlier version does not know the call, and gRPC answers for it.
        raise CommandError(
            f"the server at {client.endpoint} is of an earlier version, which has its metrics at its HTTP endpoint "
            "only: pass --http HOST:PORT",
            ExitCode.FAILURE,
        ) from error
